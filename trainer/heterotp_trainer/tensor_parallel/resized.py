"""Linears of which a rank computes some columns itself, leaves some out and gives some away.

Shapes as in linear.py; K kept, P pruned, C given columns. In place of X W^T, dY W and dY^T X:

| product | here                             | a receiver of C        | brought together by                     |
|---------|----------------------------------|------------------------|-----------------------------------------|
| Y       | X[:, K] W[:, K]^T                | X[:, C] W[:, C]^T      | column: reduced to the sender; row: sum |
| dX      | [:, K] = dY W[:, K], P imputed   | [:, C] = dY W[:, C]    | column: sum; row: gathered              |
| dW      | [:, K] = dY^T X[:, K], P imputed | [:, C] = dY^T X[:, C]  | gathered                                |

"sum" is the layer's own all-reduce, into which a receiver adds its part (reduce merging); scatterGather sends it
back to the sender instead. dY is the sender's own dY_s in a column-parallel linear, and the same everywhere in a
row-parallel one.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.tensor_parallel.collectives import start_sum
from heterotp_trainer.tensor_parallel.column_partition import ColumnPartition
from heterotp_trainer.tensor_parallel.column_transport import ColumnTransport, transport_for
from heterotp_trainer.tensor_parallel.columns import ColumnSet
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.product import multiply, rows_of


class Resizable(Protocol):
    """What the functions below need of a linear."""

    tp: TPContext
    partition: ColumnPartition | None


@contextmanager
def copying(tp: TPContext) -> Iterator[None]:
    """Run copies of columns in phase "migrate", settled by the device (Omega of the paper's section 4)."""
    started = time.perf_counter()
    with phase(tp.clock, "migrate"):
        yield
    tp.device.settle_copy(started)


def _packed(columns: ColumnSet, tensors: Sequence[Tensor], tp: TPContext) -> Tensor:
    """Return the chosen columns of several matrices, one below the other, in the type that is computed in."""
    with copying(tp):
        return torch.cat([columns.gather(tensor).to(tp.dtype) for tensor in tensors])


def _kept(partition: ColumnPartition, matrix: Tensor, tp: TPContext) -> Tensor:
    """Return the kept columns in the type that is computed in."""
    with copying(tp):
        return partition.kept.gather(matrix).to(tp.dtype)


def _imputed(partition: ColumnPartition, name: str, gradient: Tensor, tp: TPContext) -> Tensor:
    with copying(tp):
        return partition.impute(name, gradient)


def _transports(partition: ColumnPartition, tp: TPContext) -> list[ColumnTransport]:
    return [transport_for(tp, migration) for migration in partition.migrations]


class ResizedColumn(torch.autograd.Function):
    """Y_i = X W_i^T with resized matrices; backward sums dX over the group."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, linear: Resizable) -> Tensor:
        tp, partition = linear.tp, linear.partition
        assert partition is not None
        ctx.tp, ctx.partition, ctx.transports, ctx.shape = tp, partition, _transports(partition, tp), x.shape
        ctx.weight_dtype = weight.dtype
        flat = rows_of(x)
        arriving = [c.send_columns(_outgoing(c, partition, [weight], tp), c.migration.outputs) for c in ctx.transports]
        own_x, own_w = _kept(partition, flat, tp), _kept(partition, weight, tp)
        out = multiply(own_x, own_w.t(), tp)
        saved = [own_x, own_w]
        for each, arrives in zip(ctx.transports, arriving, strict=True):
            theirs, part = arrives(), None
            if each.piece is not None and theirs is not None:
                their_x = _selected(each, flat, tp)
                part = multiply(their_x, theirs.t(), tp)
                saved += [their_x, theirs]
            total = each.return_sum(out if each.sends else part, len(flat), each.migration.outputs)
            out = total if total is not None else out
        ctx.save_for_backward(*saved)
        return out.view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        own_x, own_w, *theirs = ctx.saved_tensors
        tp, partition, dy = ctx.tp, ctx.partition, rows_of(grad).contiguous()
        arriving = [
            each.send_whole(dy if each.sends else None, len(dy), each.migration.outputs) for each in ctx.transports
        ]
        dx = multiply(dy, own_w, tp)
        dx = _imputed(partition, "input", dx, tp)
        received = _received(ctx.transports, arriving, theirs)
        for each, (dy_s, _, w_s) in received:
            _give_dx(each, dy_s, w_s, dx, partition, tp)
        partition.remember("input", dx)
        finish = start_sum(dx, tp)
        dw = multiply(dy.t(), own_x, tp)
        dw = _imputed(partition, "weight", dw, tp)
        for each, (dy_s, x_s, _) in received:
            _give_dw(each, dy_s, x_s, dw, partition, tp)
        partition.remember("weight", dw)
        return finish().view(ctx.shape), dw.to(ctx.weight_dtype), None


Received = list[tuple[ColumnTransport, tuple[Tensor | None, Tensor | None, Tensor | None]]]


def _received(transports: list[ColumnTransport], arriving: Sequence[Any], theirs: list[Tensor]) -> Received:
    """Return per courier dY_s, X[:, C] and W_s[:, C], where this rank has a piece of it."""
    pairs = iter(zip(theirs[::2], theirs[1::2], strict=True))
    out: Received = []
    for each, arrives in zip(transports, arriving, strict=True):
        dy = arrives()
        x, w = next(pairs) if each.piece is not None else (None, None)
        out.append((each, (dy if each.piece is not None else None, x, w)))
    return out


def _outgoing(
    each: ColumnTransport, partition: ColumnPartition, tensors: Sequence[Tensor], tp: TPContext
) -> Tensor | None:
    """Return what the sender sends of these matrices; None on other ranks."""
    if not each.sends:
        return None
    assert partition.given is not None
    return _packed(partition.given, tensors, tp)


def _selected(each: ColumnTransport, x: Tensor, tp: TPContext) -> Tensor:
    """Return X[:, C], this rank's piece of the columns given: X is the same on all ranks."""
    assert each.piece is not None and each.migration.ids is not None
    with copying(tp):
        return x.index_select(1, each.migration.ids[each.piece.start : each.piece.stop])


def _give_dx(
    each: ColumnTransport, dy: Tensor | None, w: Tensor | None, dx: Tensor, partition: ColumnPartition, tp: TPContext
) -> None:
    """Bring dX[:, C] into the coming all-reduce: by the receiver itself, else by way of the sender."""
    part = None
    if dy is not None and w is not None:
        part = multiply(dy, w, tp)
    if each.merges:
        if part is not None:
            assert each.piece is not None and each.migration.ids is not None
            with copying(tp):
                dx.index_add_(1, each.migration.ids[each.piece.start : each.piece.stop], part)
        return
    returned = each.return_columns(part, len(dx))
    if returned is not None and partition.given is not None:
        partition.given.put(dx, returned)


def _give_dw(
    each: ColumnTransport, dy: Tensor | None, x: Tensor | None, dw: Tensor, partition: ColumnPartition, tp: TPContext
) -> None:
    """Return dW[:, C] to the sender, whose columns they are."""
    part = None
    if dy is not None and x is not None:
        part = multiply(dy.t(), x, tp)
    returned = each.return_columns(part, each.migration.outputs)
    if returned is not None and partition.given is not None:
        partition.given.put(dw, returned)


class ResizedRow(torch.autograd.Function):
    """Y = sum_i X_i W_i^T + b with resized matrices; dY is the same on every rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, linear: Resizable) -> Tensor:
        tp, partition = linear.tp, linear.partition
        assert partition is not None
        ctx.tp, ctx.partition, ctx.transports = tp, partition, _transports(partition, tp)
        ctx.shape, ctx.weight_dtype, ctx.bias_dtype = x.shape, weight.dtype, None if bias is None else bias.dtype
        flat, outputs = rows_of(x), weight.shape[0]
        arriving = [
            c.send_columns(_outgoing(c, partition, [flat, weight], tp), len(flat) + outputs) for c in ctx.transports
        ]
        own_x, own_w = _kept(partition, flat, tp), _kept(partition, weight, tp)
        out = multiply(own_x, own_w.t(), tp)
        saved = [own_x, own_w]
        for each, arrives in zip(ctx.transports, arriving, strict=True):
            theirs, part = arrives(), None
            if each.piece is not None and theirs is not None:
                their_x, their_w = theirs[: len(flat)], theirs[len(flat) :]
                part = multiply(their_x, their_w.t(), tp)
                saved += [their_x, their_w]
            out = _merged(each, out, part, tp)
        ctx.save_for_backward(*saved)
        total = start_sum(out, tp)().view(*x.shape[:-1], outputs)
        return total if bias is None else total.add_(bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        own_x, own_w, *theirs = ctx.saved_tensors
        tp, partition, dy = ctx.tp, ctx.partition, rows_of(grad).contiguous()
        dx, dw = multiply(dy, own_w, tp), multiply(dy.t(), own_x, tp)
        dx, dw = _imputed(partition, "input", dx, tp), _imputed(partition, "weight", dw, tp)
        pairs = iter(zip(theirs[::2], theirs[1::2], strict=True))
        for each in ctx.transports:
            piece = None
            if each.piece is not None:
                x, w = next(pairs)
                piece = torch.cat([multiply(dy, w, tp), multiply(dy.t(), x, tp)])
            returned = each.return_columns(piece, len(dy) + dy.shape[1])
            if returned is not None and partition.given is not None:
                partition.given.put(dx, returned[: len(dy)])
                partition.given.put(dw, returned[len(dy) :])
        partition.remember("input", dx)
        partition.remember("weight", dw)
        db = None if ctx.bias_dtype is None else dy.sum(0, dtype=ctx.bias_dtype)
        return dx.view(ctx.shape), dw.to(ctx.weight_dtype), db, None


def _merged(each: ColumnTransport, out: Tensor, part: Tensor | None, tp: TPContext) -> Tensor:
    """Return this rank's partial sum with what was computed for the sender: added here, or at the sender."""
    if each.merges:
        return out if part is None else out.add_(part)
    total = each.return_sum(out if each.sends else part, *out.shape)
    return out if total is None else total
