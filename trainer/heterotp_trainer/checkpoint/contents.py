"""All that a checkpoint holds: model, buffers, optimizer, importance of columns, generators, the user's objects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from heterotp_trainer.checkpoint import stream
from heterotp_trainer.checkpoint.generators import generator_states, resume_generators
from heterotp_trainer.checkpoint.kept import Kept
from heterotp_trainer.checkpoint.optimizer_settings import resume_settings, settings_of
from heterotp_trainer.checkpoint.rank_states import ByRank, RankState, collect, facts_of, tensors_of, value_of
from heterotp_trainer.checkpoint.storage import Read
from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.context import TPContext

GENERATORS, OPTIMIZER, KEPT = "generators", "optimizer", "kept/"  # names of ranks' states


@dataclass(frozen=True)
class Contents:
    """What is saved and restored together; slots: returns the tensors of columns, the same ones on all ranks."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    kept: Kept = field(default_factory=Kept)
    slots: Callable[[], Sequence[stream.Slot]] = tuple

    @property
    def parameters(self) -> stream.Named:
        """The parameters by name."""
        return dict(self.model.named_parameters())

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The persistent buffers by name; all ranks hold the same."""
        persistent = self.model.state_dict(keep_vars=True)
        return {name: buffer for name, buffer in self.model.named_buffers() if name in persistent}

    def collect(self, tp: TPContext) -> ByRank:
        """Return on rank 0 the states of all ranks (all ranks); raises ValueError naming one that cannot be stored."""
        return collect(self._states(tp.device.torch_device), tp.rank, tp.ranks, tp.control_group)

    def check(self, tp: TPContext) -> None:
        """Raise InputError naming a state that cannot be stored: at the start, not at the first checkpoint."""
        self._states(tp.device.torch_device)

    def gather(
        self,
        states: ByRank,
        tp: TPContext,
        write: Callable[[str, Tensor], None],
        pace: Callable[[int], None] = lambda nbytes: None,
    ) -> dict[str, Any]:
        """Pass every whole tensor to `write` on rank 0; return the JSON-ready facts beside them (all ranks).

        pace: called on all ranks with the bytes of a tensor that was written.
        """
        stream.gather(self.parameters, self.optimizer, tp, write, pace)
        if tp.rank == 0:
            for name, buffer in self.buffers.items():
                write(f"buffer/{name}", buffer)
        stream.gather_slots(self.slots(), tp, write, pace)
        for name, tensor in tensors_of(states):
            write(name, tensor)
        return {"ranks": tp.ranks, "unitPlan": tp.unit_plan.hash, "states": facts_of(states)}

    def _states(self, device: torch.device) -> dict[str, RankState]:
        found = {
            OPTIMIZER: RankState.of(settings_of(self.optimizer, self.parameters), "optimizer"),
            GENERATORS: RankState.of(generator_states(device), "random generators"),
        }
        for name, state in self.kept.states().items():
            found[KEPT + name] = RankState.of(state, f"session.keep({name!r}): state_dict()")
        return found

    def scatter(
        self,
        iteration: int,
        facts: dict[str, Any] | None,
        tp: TPContext,
        read: Read,
    ) -> list[str]:
        """Fill everything from rank 0's whole tensors (all ranks); return what people should know, a line each.

        facts: as `gather` returned them; None for a checkpoint of an earlier version, which holds only model and
        optimizer tensors. Raises ValueError where it is of another model, or what the user keeps is not what it holds.
        """
        states = facts["states"] if facts is not None else {}
        held = [name.removeprefix(KEPT) for name in states if name.startswith(KEPT)]
        self.kept.check(held if facts is not None else None, iteration)
        self.check(tp)
        targets = stream.Targets(
            buffers=self.buffers,
            slots={slot.name: slot for slot in self.slots()},
            same_shares=facts is not None and facts["unitPlan"] == tp.unit_plan.hash,
        )
        stream.scatter(self.parameters, self.optimizer, tp, read, targets)
        if facts is None:
            return ["written by an earlier version: buffers, learning rates, generators and kept states begin anew"]
        missing = sorted(targets.buffers.keys() - targets.filled)
        if missing:
            raise InputError(f"the checkpoint lacks buffers of the model: {', '.join(missing[:3])}")
        return self._resume(facts, targets.states, tp)

    def _resume(self, facts: dict[str, Any], tensors: dict[str, Tensor], tp: TPContext) -> list[str]:
        """Continue all ranks' states; return what people should know, a line each."""
        states, said = facts["states"], []
        others = facts["ranks"] != tp.ranks
        rank = 0 if others else tp.rank
        values = {name: value_of(states, name, rank, tensors) for name in states}
        changed = resume_settings(self.optimizer, self.parameters, values.pop(OPTIMIZER))
        if changed:
            said.append(f"settings of the optimizer as in the checkpoint: {', '.join(changed)}")
        unlike = sorted(name.removeprefix(KEPT) for name, by_rank in states.items() if len(by_rank) > 1)
        if others and unlike:
            said.append(f"{', '.join(unlike)}: unlike on its {facts['ranks']} ranks; all continue with rank 0's")
        generators = values.pop(GENERATORS)
        self.kept.resume({name.removeprefix(KEPT): value for name, value in values.items()})
        resume_generators(generators, tp.device.torch_device)  # last: a user's load_state_dict may draw
        return said
