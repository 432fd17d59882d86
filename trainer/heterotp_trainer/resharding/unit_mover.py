"""Moves units to their new owners between two optimizer steps, layer by layer, point to point (all ranks).

A layer's old tensors are freed as soon as the rank holds its new ones, so that a move needs the memory of the units
that arrive, of one layer's shard and of a chunk.

| call | rank i holds                           | afterwards                     |
|------|----------------------------------------|--------------------------------|
| move | its units by tp.unit_plan, all tensors | its units by `after`, the same |
"""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.plans.unit_plan import FAMILIES, Family, Transfer, UnitPlan, transfers
from heterotp_trainer.resharding import memory
from heterotp_trainer.resharding.messages import Message, kept, messages
from heterotp_trainer.resharding.sharded_state import ExtraStates, Layer, Named, ShardedState, layers_of, states_of
from heterotp_trainer.tensor_parallel.collectives import carrier
from heterotp_trainer.tensor_parallel.column_transport import start
from heterotp_trainer.tensor_parallel.context import TPContext

CHUNK_BYTES = 32 << 20  # in flight at a rank at once, in each direction


class UnitMover:
    """One rank's part in moves; more: returns the states of a parameter's units besides optimizer state."""

    def __init__(
        self, tp: TPContext, parameters: Named, optimizer: torch.optim.Optimizer | None, more: ExtraStates
    ) -> None:
        self._tp, self._optimizer, self._more = tp, optimizer, more
        self._layers = layers_of(parameters)
        self._reserved: list[Tensor] | None = None
        self.moving = False  # some layers may be cut by another plan than tp.unit_plan

    def unit_bytes(self) -> dict[Family, float]:
        """Return the bytes of one unit with all its state, over all layers, by family."""
        total = dict.fromkeys(FAMILIES, 0.0)
        for layer in self._layers:
            total[layer.family] += sum(state.unit_bytes for state in self._states(layer))
        return total

    def reserve(self, after: UnitPlan) -> bool:
        """Reserve the memory that a move to this plan needs; return whether there is enough."""
        self.release()
        self._reserved = memory.reserve(self._needed(after), self._tp.device.torch_device)
        return self._reserved is not None

    def release(self) -> None:
        """Release the reserved memory."""
        self._reserved = None

    def move(self, after: UnitPlan) -> None:
        """Move all units to their owners by this plan, which is then tp.unit_plan (all ranks)."""
        self.release()
        tp = self._tp
        moves = transfers(tp.unit_plan, after)
        self.moving = True
        with phase(tp.clock, "migrate"):
            for layer in self._layers:
                self._move_layer(layer, after, [move for move in moves if move.family == layer.family])
            if tp.device.torch_device.type == "cuda":
                torch.cuda.synchronize(tp.device.torch_device)  # so that its seconds are measured
            with tp.where.waiting("the end of the move on all ranks"):
                dist.barrier(group=tp.control_group)
        tp.unit_plan, self.moving = after, False

    def _states(self, layer: Layer) -> list[ShardedState]:
        return states_of(layer.parameters, self._optimizer, self._more)

    def _needed(self, after: UnitPlan) -> memory.Need:
        """Return the most memory that a move needs beyond what is held now; gradients grow with the next iteration."""
        rank, before = self._tp.rank, self._tp.unit_plan
        growth, largest = 0, 0
        for layer in self._layers:
            nbytes = sum(state.unit_bytes for state in self._states(layer))
            now, then = before.counts(layer.family)[rank], after.counts(layer.family)[rank]
            growth += (then - now) * (nbytes + layer.gradient_bytes)
            largest = max(largest, then * nbytes)
        return memory.Need(max(0, growth), largest + 2 * CHUNK_BYTES)

    def _move_layer(self, layer: Layer, after: UnitPlan, moves: Sequence[Transfer]) -> None:
        tp, family = self._tp, layer.family
        if not any(tp.rank in (move.source, move.target) for move in moves):
            return
        old = self._states(layer)
        new = [state.empty(after.counts(family)[tp.rank]) for state in old]
        for now, then, units in kept(tp.unit_plan, after, family, tp.rank):
            for source, target in zip(old, new, strict=True):
                target.units(then, units).copy_(source.units(now, units))
        self._exchange(old, new, after, moves)
        for state in new:
            state.put(state.tensor)

    def _exchange(
        self, old: list[ShardedState], new: list[ShardedState], after: UnitPlan, moves: Sequence[Transfer]
    ) -> None:
        """Send and receive the units of one layer, one message to and from each peer at a time."""
        tp = self._tp
        limit = CHUNK_BYTES // max(1, tp.ranks - 1)  # both ends must cut messages alike
        every = messages(tp.unit_plan, after, moves, [state.unit_bytes for state in old], limit)
        outgoing = {pair[1]: each for pair, each in every.items() if pair[0] == tp.rank}
        incoming = {pair[0]: each for pair, each in every.items() if pair[1] == tp.rank}
        rounds = max(map(len, [*outgoing.values(), *incoming.values()]))
        for number in range(rounds):
            sent, arriving = (
                {peer: each[number] for peer, each in way.items() if number < len(each)} for way in (outgoing, incoming)
            )
            self._round(sent, arriving, old, new)

    def _round(
        self,
        outgoing: Mapping[int, Message],
        incoming: Mapping[int, Message],
        old: list[ShardedState],
        new: list[ShardedState],
    ) -> None:
        tp, device = self._tp, carrier(self._tp)
        sent = {peer: _packed(message, old).to(device) for peer, message in outgoing.items()}
        arriving = {
            peer: torch.empty(sum(p.units * new[p.state].unit_bytes for p in message), dtype=torch.uint8, device=device)
            for peer, message in incoming.items()
        }
        works = start(
            [dist.P2POp(dist.isend, tensor, peer, group=tp.group) for peer, tensor in sent.items()]
            + [dist.P2POp(dist.irecv, tensor, peer, group=tp.group) for peer, tensor in arriving.items()]
        )
        with tp.where.waiting("units of other ranks"):
            for work in works:
                work.wait()
        nbytes = max(sum(t.nbytes for t in each.values()) for each in (sent, arriving))
        tp.device.settle_transfer(nbytes, 1)
        for peer, message in incoming.items():
            _unpack(message, arriving[peer].to(tp.device.torch_device), new)


def _packed(message: Message, sharded_states: Sequence[ShardedState]) -> Tensor:
    """Return the bytes of a message's units, one after the other: [bytes] uint8."""
    parts = [
        sharded_states[p.state].units(p.taken_from, p.units).contiguous().view(-1).view(torch.uint8) for p in message
    ]
    return torch.cat(parts)


def _unpack(message: Message, data: Tensor, sharded_states: Sequence[ShardedState]) -> None:
    """Copy the units of a message into their places."""
    sizes = [p.units * sharded_states[p.state].unit_bytes for p in message]
    for piece, part in zip(message, data.split(sizes), strict=True):
        target = sharded_states[piece.state].units(piece.put_at, piece.units)
        target.copy_(part.clone().view(target.dtype).view(target.shape))  # clone: a view needs the type's alignment
