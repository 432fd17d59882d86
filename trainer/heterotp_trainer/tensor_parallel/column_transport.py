"""How migrated work travels: the paper's broadcast-reduce, and the scatter-gather that it is compared with.

Shapes: n rows, m migrated columns, c columns of one receiver's piece, k columns of a whole matrix.

| call           | sender holds    | receiver holds   | afterwards                  | broadcastReduce | scatterGather |
|----------------|-----------------|------------------|-----------------------------|-----------------|---------------|
| send_columns   | [n, m]          | -                | receiver: its piece [n, c]  | one broadcast   | a send each   |
| send_whole     | [n, k]          | -                | receiver: [n, k]            | one broadcast   | a send each   |
| return_sum     | its part [n, k] | its part [n, k]  | sender: the sum [n, k]      | one reduction   | a send each   |
| return_columns | -               | its piece [n, c] | sender: side by side [n, m] | a send each     | a send each   |

All ranks of the group make every call in the same order. Time is booked on "wait".
"""

import math
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.tensor_parallel.collectives import carrier, reduced, wide
from heterotp_trainer.tensor_parallel.column_partition import Migration
from heterotp_trainer.tensor_parallel.context import TPContext

Arriving = Callable[[], Tensor | None]


class ColumnTransport:
    """Point-to-point transport: all calls of scatterGather, and return_columns of broadcastReduce."""

    merges = False  # whether a receiver adds its part to an all-reduce that follows anyway

    def __init__(self, tp: TPContext, migration: Migration) -> None:
        self.tp, self.migration = tp, migration
        self.sends = tp.rank == migration.sender
        self.piece = migration.piece(tp.rank)
        self._carrier = carrier(tp)

    def send_columns(self, columns: Tensor | None, rows: int) -> Arriving:
        """Start to send each receiver its piece [rows, c] of the sender's [rows, m]; return a function that waits."""
        if columns is not None:
            parts = {p.receiver: columns[:, p.start : p.stop].contiguous() for p in self.migration.pieces}
            return self._post(parts)
        return self._expect((rows, self.piece.columns)) if self.piece else _nothing

    def send_whole(self, whole: Tensor | None, rows: int, width: int) -> Arriving:
        """Start to send every receiver the sender's [rows, width]; return a function that waits."""
        if whole is not None:
            return self._post({piece.receiver: whole for piece in self.migration.pieces})
        return self._expect((rows, width)) if self.piece else _nothing

    def return_sum(self, part: Tensor | None, rows: int, width: int) -> Tensor | None:
        """Return the sum of the sender's and the receivers' parts [rows, width] at the sender, None elsewhere."""
        if not self.sends:
            return self._post({self.migration.sender: part})() if part is not None and self.piece else None
        assert part is not None
        total = part.clone()
        for arrived in self._collect({p.receiver: (rows, width) for p in self.migration.pieces}).values():
            total += arrived
        return total

    def return_columns(self, piece: Tensor | None, rows: int) -> Tensor | None:
        """Return the receivers' pieces [rows, c] side by side, [rows, m], at the sender, None elsewhere."""
        if not self.sends:
            return self._post({self.migration.sender: piece})() if piece is not None else None
        shapes = {p.receiver: (rows, p.columns) for p in self.migration.pieces}
        arrived = self._collect(shapes)
        return torch.cat([arrived[p.receiver] for p in self.migration.pieces], 1)

    def _post(self, parts: dict[int, Tensor]) -> Arriving:
        """Start to send a tensor to each receiver; the returned function keeps the tensors alive and waits."""
        with phase(self.tp.clock, "wait"):
            kept = {to: tensor.contiguous().to(self._carrier) for to, tensor in parts.items()}
            works = start([dist.P2POp(dist.isend, t, to, group=self.tp.group) for to, t in kept.items() if t.numel()])

        def finish() -> None:
            self._finish(works, sum(t.nbytes for t in kept.values()), len(kept))

        return finish

    def _expect(self, shape: tuple[int, int]) -> Arriving:
        arriving = self._receive({self.migration.sender: shape})
        return lambda: arriving()[self.migration.sender]

    def _collect(self, shapes: dict[int, tuple[int, int]]) -> dict[int, Tensor]:
        return self._receive(shapes)()

    def _receive(self, shapes: dict[int, tuple[int, int]]) -> Callable[[], dict[int, Tensor]]:
        with phase(self.tp.clock, "wait"):
            tensors = {source: self._arriving(shape) for source, shape in shapes.items()}
            works = start(
                [dist.P2POp(dist.irecv, t, of, group=self.tp.group) for of, t in tensors.items() if t.numel()]
            )

        def finish() -> dict[int, Tensor]:
            self._finish(works, sum(t.nbytes for t in tensors.values()), len(tensors))
            return {source: tensor.to(self.tp.device.torch_device) for source, tensor in tensors.items()}

        return finish

    def _arriving(self, shape: tuple[int, int]) -> Tensor:
        return torch.empty(shape, dtype=self.tp.dtype, device=self._carrier)

    def _finish(self, works: list[dist.Work], nbytes: float, steps: int) -> None:
        with phase(self.tp.clock, "wait"), self.tp.where.waiting("migrated columns"):
            for work in works:
                work.wait()
            self.tp.device.settle_transfer(nbytes, steps)


class BroadcastReduceTransport(ColumnTransport):
    """Broadcasts and reductions along trees: receivers forward and sum, so that the sender is no bottleneck."""

    merges = True

    def send_columns(self, columns: Tensor | None, rows: int) -> Arriving:
        """See ColumnTransport.send_columns: all ranks receive [rows, m], a receiver cuts out its piece."""
        arriving = self._broadcast(columns, (rows, self.migration.columns))
        piece = self.piece
        if piece is None:
            return arriving
        start, stop = piece.start, piece.stop

        def finish() -> Tensor | None:
            arrived = arriving()
            return None if arrived is None else arrived[:, start:stop].contiguous()

        return finish

    def send_whole(self, whole: Tensor | None, rows: int, width: int) -> Arriving:
        """See ColumnTransport.send_whole."""
        return self._broadcast(whole, (rows, width))

    def return_sum(self, part: Tensor | None, rows: int, width: int) -> Tensor | None:
        """See ColumnTransport.return_sum; a rank without a part adds zeros."""
        with phase(self.tp.clock, "wait"), self.tp.where.waiting("the sum of migrated columns"):
            own = self._arriving((rows, width)).zero_() if part is None else part
            summed = reduced(own, self.migration.sender, self.tp)
            self.tp.device.settle_transfer(own.nbytes, self._depth())
        return summed if self.sends else None

    def _broadcast(self, tensor: Tensor | None, shape: tuple[int, int]) -> Arriving:
        with phase(self.tp.clock, "wait"):
            buffer = self._arriving(shape) if tensor is None else tensor.contiguous().to(self._carrier)
            # some versions of gloo lack bf16, none lacks bytes
            carried = buffer.view(torch.uint8) if wide(buffer, self.tp) else buffer
            work = dist.broadcast(carried, src=self.migration.sender, group=self.tp.group, async_op=True)
            assert work is not None

        def finish() -> Tensor | None:
            self._finish([work], 0.0, 0)
            with phase(self.tp.clock, "wait"):
                self.tp.device.settle_transfer(buffer.nbytes, self._depth())
            return buffer.to(self.tp.device.torch_device) if self.piece else None

        return finish

    def _depth(self) -> int:
        return math.ceil(math.log2(self.tp.ranks))


def _nothing() -> None:
    return None


def start(operations: list[dist.P2POp]) -> list[dist.Work]:
    """Start point-to-point operations; return the works to wait for."""
    return dist.batch_isend_irecv(operations) if operations else []


def transport_for(tp: TPContext, migration: Migration) -> ColumnTransport:
    """Return the transport of a migration's primitive."""
    return (BroadcastReduceTransport if migration.primitive == "broadcastReduce" else ColumnTransport)(tp, migration)
