"""Linears of which a rank computes some contraction columns itself, prunes some, and migrates some to other ranks.

Shapes as in linear.py. K, P, C: the columns that a rank keeps, prunes and migrates; the receivers share C among them,
and a rank may be sender, receiver, both or neither.

| rank       | holds                                  | sends                        | receives                |
|------------|----------------------------------------|------------------------------|-------------------------|
| sender s   | W_s, X (column) or X_s (row), dY_s     | W_s[:, C]; row: X_s[:, C],   | Y, dX, dW of C, summed  |
|            |                                        | too; column: dY_s            | or side by side         |
| receiver r | its own shard; column: X; row: dY      | its part of Y, dX, dW        | W_s[:, C_r] and so on   |

| product | sender                           | a receiver of C        | brought together by                     |
|---------|----------------------------------|------------------------|-----------------------------------------|
| Y       | X[:, K] W[:, K]^T                | X[:, C] W[:, C]^T      | column: reduced to the sender; row: sum |
| dX      | [:, K] = dY W[:, K], P imputed   | [:, C] = dY W[:, C]    | column: sum; row: gathered              |
| dW      | [:, K] = dY^T X[:, K], P imputed | [:, C] = dY^T X[:, C]  | gathered                                |

What forward saves are X and W as the plain layers save them, and what was received: no copy of the kept columns, which
backward selects again by their numbers (the paper's lineage). So a pruned linear takes no more memory than a plain one.

"sum" is the layer's own all-reduce, to which a receiver adds its part (reduce merging); scatterGather returns the part
to the sender instead. Forward and backward sums are Megatron's g (row, Y) and f (column, dX). dY is the sender's own
dY_s in a column-parallel linear, and the same on every rank in a row-parallel one.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.devices.stage_times import BACKWARD, OTHER
from heterotp_trainer.tensor_parallel.backward_order import link_of, no_gradient
from heterotp_trainer.tensor_parallel.collectives import start_sum, summed
from heterotp_trainer.tensor_parallel.column_partition import ColumnPartition
from heterotp_trainer.tensor_parallel.column_transport import ColumnTransport, transport_for
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.product import multiply, rows_of
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec


class Resizable(Protocol):
    """What the functions below need of a linear."""

    tp: TPContext
    name: str
    spec: ShardSpec
    partition: ColumnPartition | None


@contextmanager
def copying(tp: TPContext) -> Iterator[None]:
    """Run copies of columns in phase "migrate", settled by the device (Omega of the paper's section 4)."""
    started = time.perf_counter()
    with phase(tp.clock, "migrate"):
        yield
    tp.device.settle_copy(started)


# -- what both linears share ----------------------------------------------------------------------------------


def _forward(ctx: Any, x: Tensor, weight: Tensor, linear: Resizable, *, shared_x: bool) -> Tensor:
    """Return this rank's product [M, N] over K, with what receivers computed; save what backward needs.

    shared_x: every rank holds X (column-parallel), so that only W travels and the sender alone needs the receivers'
    parts; else (row-parallel) X travels above W, and a part may enter the layer's own sum at the receiver.
    """
    tp, partition = linear.tp, linear.partition
    assert partition is not None
    ctx.stage = BACKWARD[linear.spec.family]
    ctx.tp, ctx.partition, ctx.transports = tp, partition, [transport_for(tp, each) for each in partition.migrations]
    flat = rows_of(x)
    travelling, x_rows = ([weight], 0) if shared_x else ([flat, weight], len(flat))
    arriving = [
        each.send_columns(_migrating(each, partition, travelling, tp), x_rows + each.migration.outputs)
        for each in ctx.transports
    ]
    out = multiply(_kept(partition, flat, tp), _kept(partition, weight, tp).t(), tp)
    saved = [x, weight]
    for each, arrives in zip(ctx.transports, arriving, strict=True):
        received, part = arrives(), None
        if each.piece is not None and received is not None:
            their_x = _selected(each, flat, tp) if shared_x else received[:x_rows]
            their_w = received[x_rows:]
            part = multiply(their_x, their_w.t(), tp)
            saved += [their_w] if shared_x else [their_x, their_w]
        out = _with_part(each, out, part, in_sum=not shared_x and each.merges)
    ctx.save_for_backward(*saved)
    return out


def _with_part(each: ColumnTransport, out: Tensor, part: Tensor | None, *, in_sum: bool) -> Tensor:
    """Return a rank's product [M, N] after the receivers' parts are added: by each receiver, or at the sender."""
    if in_sum:  # of the layer over the group
        return out if part is None else out.add_(part)
    total = each.return_sum(out if each.sends else part, len(out), each.migration.outputs)
    return out if total is None else total


def _own_gradient(name: str, a: Tensor, b: Tensor, partition: ColumnPartition, tp: TPContext) -> Tensor:
    """Return a b over the kept columns, in its full shape [n, L], with the pruned columns imputed."""
    kept = multiply(a, b, tp)
    with copying(tp):
        return partition.impute(name, kept)


def _received_factors(
    transports: list[ColumnTransport], saved: list[Tensor], x: Tensor | None, tp: TPContext
) -> list[tuple[ColumnTransport, Tensor | None, Tensor | None]]:
    """Return per transport X[:, C_r] and W_s[:, C_r] of this rank's piece; None, None where it has none.

    x: X [M, D] where every rank holds it, so that the piece is selected again; None: it was received, and saved.
    """
    left = iter(saved)
    out: list[tuple[ColumnTransport, Tensor | None, Tensor | None]] = []
    for each in transports:
        if each.piece is None:
            out.append((each, None, None))
        else:
            out.append((each, next(left) if x is None else _selected(each, x, tp), next(left)))
    return out


def _gather_at_sender(
    each: ColumnTransport, part: Tensor | None, partition: ColumnPartition, gradients: Sequence[Tensor]
) -> None:
    """Write the receivers' columns into the sender's gradients; `part` holds this rank's, one gradient above the next.

    | rank     | part                    | gradients afterwards                       |
    |----------|-------------------------|--------------------------------------------|
    | sender   | -                       | [n, L] each, with the columns C filled in  |
    | receiver | [sum of n, C_r]         | unchanged                                  |
    """
    sizes = [len(gradient) for gradient in gradients]
    returned = each.return_columns(part, sum(sizes))
    if returned is not None and partition.migrated is not None:
        for gradient, columns in zip(gradients, returned.split(sizes), strict=True):
            partition.migrated.put(gradient, columns)


def _kept(partition: ColumnPartition, matrix: Tensor, tp: TPContext) -> Tensor:
    """Return the kept columns of [n, L], in the precision of the products: [n, k]."""
    with copying(tp):
        return partition.kept.gather(matrix).to(tp.dtype)


def _migrating(
    each: ColumnTransport, partition: ColumnPartition, matrices: Sequence[Tensor], tp: TPContext
) -> Tensor | None:
    """Return the sender's columns C of these matrices, one above the next: [sum of n, m]; None on other ranks."""
    if not each.sends:
        return None
    assert partition.migrated is not None
    with copying(tp):
        return torch.cat([partition.migrated.gather(matrix).to(tp.dtype) for matrix in matrices])


def _ids(each: ColumnTransport) -> Tensor:
    """Return the numbers [c] of the columns of X in this rank's piece."""
    assert each.piece is not None and each.migration.ids is not None
    return each.migration.ids[each.piece.start : each.piece.stop]


def _selected(each: ColumnTransport, x: Tensor, tp: TPContext) -> Tensor:
    """Return X[:, C_r], this rank's piece of the migrated columns, where X is the same on all ranks."""
    with copying(tp):
        return x.index_select(1, _ids(each))


# -- the two linears ------------------------------------------------------------------------------------------


class ResizedColumn(torch.autograd.Function):
    """Y_i = X W_i^T with resized matrices; every rank holds X [M, D] and gets its own Y_i [M, R_i].

    forward   Y_i = X[:, K] W_i[:, K]^T + the receivers' X[:, C] W_i[:, C]^T
    dX        summed over the group: dY_i W_i[:, K] in columns K, receivers' dY_i W_i[:, C] in columns C, P imputed
    dW_i      dY_i^T X[:, K] in columns K, receivers' dY_i^T X[:, C] in columns C, P imputed
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, linear: Resizable) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.bias, ctx.name = bias, linear.name
        out = _forward(ctx, x, weight, linear, shared_x=True)
        return out.view(*x.shape[:-1], weight.shape[0]), link_of(out)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, link: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight, *saved = ctx.saved_tensors
        tp, partition, flat = ctx.tp, ctx.partition, rows_of(x)
        tp.clock.stage = ctx.stage
        db = no_gradient(ctx.bias) if grad is None else None
        dy = flat.new_zeros(len(flat), len(weight)) if grad is None else rows_of(grad).contiguous()
        arriving = [
            each.send_whole(dy if each.sends else None, len(dy), each.migration.outputs) for each in ctx.transports
        ]
        dx = _own_gradient("input", dy, _kept(partition, weight, tp), partition, tp)
        theirs = _received_factors(ctx.transports, saved, flat, tp)
        received = [arrives() for arrives in arriving]  # dY_s, of use only to a receiver
        for (each, _, w), dy_s in zip(theirs, received, strict=True):
            part = multiply(dy_s, w, tp) if w is not None and dy_s is not None else None
            _add_to_sum(each, part, dx, partition, tp)
        partition.remember("input", dx)
        finish = start_sum(dx, tp, f"{ctx.name}, backward")
        dw = _own_gradient("weight", dy.t(), _kept(partition, flat, tp), partition, tp)
        for (each, their_x, _), dy_s in zip(theirs, received, strict=True):
            part = multiply(dy_s.t(), their_x, tp) if their_x is not None and dy_s is not None else None
            _gather_at_sender(each, part, partition, [dw])
        partition.remember("weight", dw)
        tp.clock.stage = OTHER
        return finish().view(x.shape), dw.to(weight.dtype), db, None


def _add_to_sum(
    each: ColumnTransport, part: Tensor | None, dx: Tensor, partition: ColumnPartition, tp: TPContext
) -> None:
    """Bring dX[:, C] into the coming all-reduce of dx [M, D]: at the receiver itself, else by way of the sender."""
    if not each.merges:
        _gather_at_sender(each, part, partition, [dx])
    elif part is not None:
        with copying(tp):
            dx.index_add_(1, _ids(each), part)


class ResizedRow(torch.autograd.Function):
    """Y = sum_i X_i W_i^T + b with resized matrices; a rank holds X_i [M, R_i], and every rank gets Y [M, D].

    forward   Y summed over the group: X_i[:, K] W_i[:, K]^T, and the receivers' X_i[:, C] W_i[:, C]^T
    dX_i      dY W_i[:, K] in columns K, receivers' dY W_i[:, C] in columns C, P imputed
    dW_i      dY^T X_i[:, K] in columns K, receivers' dY^T X_i[:, C] in columns C, P imputed
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, linear: Resizable, *links: Tensor) -> Tensor:
        ctx.links = len(links)
        ctx.bias_dtype = None if bias is None else bias.dtype
        out = _forward(ctx, x, weight, linear, shared_x=False)
        total = summed(out, ctx.tp, linear.name, OTHER).view(*x.shape[:-1], weight.shape[0])
        return total if bias is None else total.add_(bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *saved = ctx.saved_tensors
        tp, partition, dy = ctx.tp, ctx.partition, rows_of(grad).contiguous()
        tp.clock.stage = ctx.stage
        dx = _own_gradient("input", dy, _kept(partition, weight, tp), partition, tp)
        dw = _own_gradient("weight", dy.t(), _kept(partition, rows_of(x), tp), partition, tp)
        for each, their_x, their_w in _received_factors(ctx.transports, saved, None, tp):
            part = None
            if their_x is not None and their_w is not None:
                part = torch.cat([multiply(dy, their_w, tp), multiply(dy.t(), their_x, tp)])
            _gather_at_sender(each, part, partition, [dx, dw])
        partition.remember("input", dx)
        partition.remember("weight", dw)
        db = None if ctx.bias_dtype is None else dy.sum(0, dtype=ctx.bias_dtype)
        return dx.view(x.shape), dw.to(weight.dtype), db, None, *(None,) * ctx.links
