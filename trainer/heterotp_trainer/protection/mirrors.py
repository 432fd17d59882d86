"""Every unit's state exists twice: each rank keeps, for its wards, a mirror of their units.

Not the state travels but the gradients: the buddy makes the same update with them. Updates are element-wise (others are
refused), so that equal gradients and states give equal states bit by bit where both ranks compute alike.

| call    | a rank holds                          | afterwards                                             |
|---------|---------------------------------------|--------------------------------------------------------|
| refresh | its units and their optimizer state   | its buddy: the same, as a mirror                       |
| receive | the gradients of its units            | its buddy: the same, for the coming update             |
| update  | mirrors, and gradients received       | mirrors after the same update as their owners made     |
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.membership.buddies import wards
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.resharding.messages import place
from heterotp_trainer.resharding.sharded_state import Named, ShardedState, states_of
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, mark_sharded, shard_spec


class Mirror:
    """The units of one ward: its sharded parameters by name, and an optimizer for them like the rank's own."""

    def __init__(self, parameters: Named, optimizer: torch.optim.Optimizer, plan: UnitPlan, ward: int) -> None:
        self.parameters: dict[str, nn.Parameter] = {}
        twins: dict[nn.Parameter, nn.Parameter] = {}
        for name, own in parameters.items():
            spec = _spec(own)
            shape = spec.shape(own.shape, plan.counts(spec.family)[ward])
            twin = mark_sharded(nn.Parameter(torch.empty(shape, dtype=own.dtype, device=own.device)), spec)
            self.parameters[name] = twins[own] = twin
        groups = [_group(group, [twins[p] for p in group["params"] if p in twins]) for group in optimizer.param_groups]
        make: Any = type(optimizer)
        self.optimizer: torch.optim.Optimizer = make(groups)
        for own, twin in twins.items():
            self.optimizer.state[twin] = {key: _like(value, own, twin) for key, value in optimizer.state[own].items()}
        self._flat: Tensor | None = None

    def states(self, name: str) -> list[ShardedState]:
        """Return all states of the units of a parameter, in the order of those of its owner."""
        return states_of([self.parameters[name]], self.optimizer, lambda parameter: ())

    def buffer(self) -> Tensor:
        """Return a tensor for the gradients: [parameters + elements]."""
        if self._flat is None:
            count = sum(p.numel() for p in self.parameters.values())
            self._flat = torch.empty(len(self.parameters) + count, dtype=_dtype(self.parameters))
        return self._flat

    def update(self, settings: torch.optim.Optimizer, factor: float) -> None:
        """Make the update of the gradients in the buffer, scaled by a factor, with an optimizer's settings of now."""
        for mine, theirs in zip(self.optimizer.param_groups, settings.param_groups, strict=True):
            mine.update({key: value for key, value in theirs.items() if key != "params"})
        flat = self.buffer()
        flags, rest = flat[: len(self.parameters)], flat[len(self.parameters) :]
        parts = rest.split([p.numel() for p in self.parameters.values()])
        for parameter, part, flag in zip(self.parameters.values(), parts, flags.tolist(), strict=True):
            parameter.grad = part.view_as(parameter) if flag else None
            if parameter.grad is not None and factor != 1.0:
                parameter.grad.mul_(factor)
        self.optimizer.step()
        for parameter in self.parameters.values():
            parameter.grad = None


class Mirrors:
    """What one rank holds of others, and sends of its own; buddies: of each rank the one that mirrors it.

    plan: that the mirrors are cut by; empty before the first `refresh`.
    """

    def __init__(
        self,
        tp: TPContext,
        parameters: Named,
        optimizer: torch.optim.Optimizer,
        group: dist.ProcessGroup | None,
        buddies: tuple[int, ...],
    ) -> None:
        """parameters: of the model; group: for this traffic alone."""
        self._tp, self._optimizer, self._group, self.buddies = tp, optimizer, group, buddies
        self._parameters = {name: p for name, p in parameters.items() if shard_spec(p) is not None}
        self._held: dict[int, Mirror] = {}
        self.plan = ""

    def refresh(self) -> None:
        """Make all mirrors anew from their owners' state (all ranks)."""
        tp = self._tp
        self.plan, self._held = "", {}
        if self.buddies:
            held = {w: Mirror(self._parameters, self._optimizer, tp.unit_plan, w) for w in wards(self.buddies, tp.rank)}
            with phase(tp.clock, "migrate"), tp.where.waiting("the mirrors of units"):
                for name, own in self._parameters.items():
                    states = states_of([own], self._optimizer, lambda parameter: ())
                    self._exchange(_packed(states), {w: mirror.states(name) for w, mirror in held.items()})
            self._held = held
        self.plan = tp.unit_plan.hash

    def _exchange(self, own: Tensor, into: Mapping[int, list[ShardedState]]) -> None:
        arriving = {
            w: torch.empty(sum(s.tensor.nbytes for s in states), dtype=torch.uint8) for w, states in into.items()
        }
        self._send(own, arriving)
        for ward, states in into.items():
            parts = arriving[ward].split([state.tensor.nbytes for state in states])
            for state, part in zip(states, parts, strict=True):
                state.tensor.copy_(part.clone().view(state.tensor.dtype).view(state.tensor.shape))

    def receive(self) -> None:
        """Send the gradients of this rank's units to its buddy, and receive those of its wards (all ranks)."""
        tp = self._tp
        if not self.buddies:
            return
        with phase(tp.clock, "wait"), tp.where.waiting("gradients for the mirrors"):
            parts = [
                p.grad.reshape(-1) if p.grad is not None else torch.zeros(p.numel(), dtype=p.dtype)
                for p in self._parameters.values()
            ]
            flags = torch.tensor(
                [p.grad is not None for p in self._parameters.values()], dtype=_dtype(self._parameters)
            )
            self._send(torch.cat([flags, *parts]), {ward: mirror.buffer() for ward, mirror in self._held.items()})

    def _send(self, own: Tensor, arriving: Mapping[int, Tensor]) -> None:
        tp = self._tp
        works = [dist.irecv(each, ward, group=self._group) for ward, each in arriving.items() if each.numel()]
        if own.numel():
            works.append(dist.isend(own, self.buddies[tp.rank], group=self._group))
        for work in works:
            assert work is not None
            work.wait()
        tp.device.settle_transfer(max([own.nbytes, *(each.nbytes for each in arriving.values())]), 1)

    def update(self, factor: float) -> None:
        """Make the update of this iteration on all mirrors; factor: by which gradients are clipped."""
        for mirror in self._held.values():
            mirror.update(self._optimizer, factor)

    @torch.no_grad()
    def take_over(self, lost: Sequence[int], held: UnitPlan, rank: int) -> None:
        """Make the units of lost wards this rank's own.

        held: the plan afterwards, in which this rank has number `rank`.
        """
        plan = self._tp.unit_plan
        for name, own in self._parameters.items():
            spec, states = _spec(own), states_of([own], self._optimizer, lambda parameter: ())
            new = [state.empty(held.counts(spec.family)[rank]) for state in states]
            sources = [(self._tp.rank, states), *((ward, self._held[ward].states(name)) for ward in lost)]
            for owner, source in sources:
                ranges = plan.ranges(spec.family, owner)
                for start, stop in ranges:
                    for old, target in zip(source, new, strict=True):
                        there = target.units(place(held.ranges(spec.family, rank), start), stop - start)
                        there.copy_(old.units(place(ranges, start), stop - start))
            for state in new:
                state.put(state.tensor)


def _group(group: Mapping[str, Any], parameters: list[nn.Parameter]) -> dict[str, Any]:
    return {**{key: value for key, value in group.items() if key != "params"}, "params": parameters}


def _like(value: object, own: nn.Parameter, twin: nn.Parameter) -> object:
    """Return room for a state that is cut as its parameter, a copy of any other: those are the same on all ranks."""
    if isinstance(value, Tensor) and value.dim() and value.shape == own.shape:
        return torch.empty_like(twin, dtype=value.dtype, requires_grad=False)
    return copy.deepcopy(value)


def _packed(states: list[ShardedState]) -> Tensor:
    return torch.cat([state.tensor.detach().contiguous().view(-1).view(torch.uint8) for state in states])


def _dtype(parameters: Named) -> torch.dtype:
    return next((p.dtype for p in parameters.values()), torch.float32)


def _spec(parameter: nn.Parameter) -> ShardSpec:
    spec = shard_spec(parameter)
    assert spec is not None
    return spec
