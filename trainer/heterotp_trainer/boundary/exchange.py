"""The boundary exchange: the one path by which a rank's wish or fact leads all ranks into a collective.

At the boundary after iteration k every rank posts one small vector to an asynchronous all-gather on a gloo
group of its own; its result is consumed at the boundary after k + 1, so it never waits on the critical path.
Whatever all ranks must do together (stop, checkpoint, evaluate, read a new control document) is decided from
the consumed vectors by one pure function, and so at the same iteration everywhere.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import torch
import torch.distributed as dist

from heterotp_trainer.devices.phase_clock import PHASES

STOP, CHECKPOINT, EVALUATE, LEASE_OVER = 1, 2, 4, 8
_NUMBERS = ("iteration", "flags", "generation", "document_bytes", "measured", "applied", "decision_id", "ready")
_SECONDS = ("full", "unslowed", "attention", "pace_ratio")
_HASHES = ("plan", "replicas")  # 64 bits each, as two whole numbers that a float64 holds exactly
WIDTH = len(_NUMBERS) + len(_SECONDS) + 2 * len(_HASHES) + len(PHASES)


class MismatchError(RuntimeError):
    """Ranks disagree on what must be equal."""


@dataclass(frozen=True)
class Report:
    """What one rank says at one boundary; seconds are of the iteration that just ended."""

    iteration: int
    flags: int = 0
    generation: int = 0  # rank 0: newest control document
    document_bytes: int = 0  # rank 0: its length when it is new, else 0
    measured: int = 1  # 0: warm-up, or the iteration held a checkpoint, an evaluation or a new plan
    applied: int = 0  # generation of the document that held in this iteration
    decision_id: int = 0  # number of the plan that held in this iteration
    ready: int = 0  # number of the proposal that memory is reserved for; negative: there is not enough
    full: float = 0.0  # matmul seconds as they would be with nothing taken from the rank
    unslowed: float = 0.0  # matmul seconds as they would be without the slow-down injected; 0: there is none
    attention: float = 0.0  # the part of the unit seconds that is attention's
    pace_ratio: float = 0.0  # how many times as long a product takes as in the pretest; 0: the rank's own work tells
    plan: int = 0  # 64-bit hash
    replicas: int = 0  # 64-bit checksum of the replicated parameters; 0: not taken this time
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def pack(self) -> torch.Tensor:
        """Return the vector: [WIDTH] float64."""
        numbers = [float(getattr(self, name)) for name in (*_NUMBERS, *_SECONDS)]
        halves = [float(half) for name in _HASHES for half in divmod(getattr(self, name), 2**32)]
        return torch.tensor([*numbers, *halves, *(self.seconds[name] for name in PHASES)], dtype=torch.float64)

    @classmethod
    def unpack(cls, vector: torch.Tensor) -> "Report":
        """Return the report that `pack` wrote."""
        values = vector.tolist()
        numbers = {name: int(value) for name, value in zip(_NUMBERS, values, strict=False)}
        times = dict(zip(_SECONDS, values[len(_NUMBERS) :], strict=False))
        rest = values[len(_NUMBERS) + len(_SECONDS) :]
        hashes = {name: int(rest[2 * i]) * 2**32 + int(rest[2 * i + 1]) for i, name in enumerate(_HASHES)}
        return cls(**numbers, **times, **hashes, seconds=dict(zip(PHASES, rest[2 * len(_HASHES) :], strict=True)))


assert {f.name for f in fields(Report)} == {*_NUMBERS, *_SECONDS, *_HASHES, "seconds"}


def comparable(reports: Sequence[Report]) -> bool:
    """Return whether all ranks' seconds are of a whole iteration under one plan: a device may report late."""
    return all(report.measured and report.decision_id == reports[0].decision_id for report in reports)


@dataclass(frozen=True)
class GangAction:
    """What all ranks do at this boundary."""

    stop: bool = False
    checkpoint: bool = False
    evaluate: bool = False
    lease_over: bool = False
    document_bytes: int = 0


def decide(reports: Sequence[Report]) -> GangAction:
    """Return what the ranks' reports ask for; raise MismatchError naming ranks that disagree."""
    for name in ("iteration", *_HASHES):
        _must_agree(name, [getattr(report, name) for report in reports])
    flags = 0
    for report in reports:
        flags |= report.flags
    return GangAction(
        stop=bool(flags & STOP),
        checkpoint=bool(flags & CHECKPOINT),
        evaluate=bool(flags & EVALUATE),
        lease_over=bool(flags & LEASE_OVER),
        document_bytes=reports[0].document_bytes,
    )


def _must_agree(name: str, values: Sequence[int]) -> None:
    if len(set(values)) == 1:
        return
    odd = [rank for rank, value in enumerate(values) if value != values[0]]
    what = {"plan": "the plan's hash", "replicas": "the checksum of replicated parameters"}.get(name, name)
    raise MismatchError(f"{what} of ranks {odd} differs from rank 0's: {[f'{value:x}' for value in values]}")


class BoundaryExchange:
    """Posts and consumes the ranks' reports."""

    def __init__(self, group: dist.ProcessGroup, ranks: int) -> None:
        self._group, self._ranks = group, ranks
        self._pending: tuple[dist.Work, list[torch.Tensor]] | None = None

    def collect(self) -> tuple[Report, ...] | None:
        """Return all ranks' reports of the boundary before; None at the first."""
        if self._pending is None:
            return None
        work, vectors = self._pending
        work.wait()
        self._pending = None
        return tuple(Report.unpack(vector) for vector in vectors)

    def post(self, report: Report) -> None:
        """Send this rank's report on its way."""
        vectors = [torch.empty(WIDTH, dtype=torch.float64) for _ in range(self._ranks)]
        work = dist.all_gather(vectors, report.pack(), group=self._group, async_op=True)
        assert work is not None
        self._pending = (work, vectors)


def checksum(tensors: Sequence[torch.Tensor]) -> int:
    """Return 63 bits that depend on every byte of the tensors, never 0; equal tensors, equal checksum."""
    total = 0
    for tensor in tensors:
        words = tensor.detach().reshape(-1).view(torch.uint8).to(torch.int64)
        places = torch.arange(1, len(words) + 1, device=words.device)
        total = (total * 1_000_003 + int((words * places).sum().item())) % (2**63 - 25)
    return total or 1


def hash_number(hex_digits: str) -> int:
    """Return 16 hex digits as a whole number."""
    return struct.unpack(">Q", bytes.fromhex(hex_digits))[0]  # type: ignore[no-any-return]
