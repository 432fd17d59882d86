"""What one rank does in each iteration so that the gang survives the loss of another one."""

from collections import deque
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from heterotp_trainer.boundary.finite_guard import BuffersBefore
from heterotp_trainer.checkpoint.generators import generator_states, resume_generators
from heterotp_trainer.membership.survivors import Left
from heterotp_trainer.protection.mirrors import Mirrors

RECENT = 4  # iterations whose reports may be lost with a rank


class Guard:
    """The mirrors of a rank, and where it is between two updates.

    applied: the last iteration whose update was made, or that a checkpoint was of; norm: of its gradients. ready: the
    iteration whose gradients this rank holds, and for its wards' mirrors, too; 0: none; clip: the bound of their norm.
    """

    def __init__(self, model: nn.Module, device: torch.device, mirrors: Mirrors) -> None:
        self.mirrors, self._device = mirrors, device
        self.applied = self.ready = 0
        self.norm = 0.0
        self.clip: float | None = None
        self._loss: float | None = None
        self._losses: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self._buffers = BuffersBefore(model)
        self._generators = generator_states(device)

    def begin(self, iteration: int, mirrors: Mirrors) -> None:
        """Protect what holds after `iteration` (all ranks)."""
        self.mirrors = mirrors
        mirrors.refresh()
        self._note(iteration, self.norm)

    def take(self, iteration: int, norm: float, mirrors: Mirrors) -> None:
        """Protect what holds after `iteration` by mirrors that are made already; norm: of its gradients."""
        self.mirrors = mirrors
        self._note(iteration, norm)

    def prepare(self, iteration: int, clip: float | None, loss: Tensor | None) -> None:
        """Bring the gradients of `iteration` to the buddies (all ranks); from then on its update can be made."""
        self.mirrors.receive()
        self.ready, self.clip = iteration, clip
        self._loss = None if loss is None else float(loss)

    def settle(self, iteration: int, norm: float, factor: float | None) -> None:
        """Make an update on the mirrors, too; factor: by which its gradients are clipped; None: it is left out."""
        if factor is not None:
            self.mirrors.update(factor)
        if self._loss is not None:
            self._losses.append((iteration, self._loss))
        self._note(iteration, norm)

    def _note(self, iteration: int, norm: float) -> None:
        """Note that the iteration after this one may be repeated from here."""
        self.applied, self.norm, self.ready = iteration, norm, 0
        self._buffers.take()
        self._generators = generator_states(self._device)

    def put_back(self) -> None:
        """Give buffers and random generators the values that they had after the last update."""
        self._buffers.put_back()
        resume_generators(self._generators, self._device)

    @property
    def losses(self) -> dict[int, float]:
        """The losses of the last iterations."""
        return dict(self._losses)

    @losses.setter
    def losses(self, losses: Mapping[int, float]) -> None:
        self._losses = deque(losses.items(), maxlen=RECENT)

    def left(self, origin: int, plan: str, *, evaluated: int, stop: bool, admitting: bool = False) -> Left:
        """Return what this rank holds, for the others; plan: hash of the units that it owns, empty while they move."""
        return Left(
            origin,
            0,
            0,
            applied=self.applied,
            norm=self.norm,
            ready=self.ready,
            plan=plan,
            mirrored=self.mirrors.plan,
            evaluated=evaluated,
            stop=stop,
            admitting=admitting,
        )
