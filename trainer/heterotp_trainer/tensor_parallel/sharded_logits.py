"""Logits of which a rank holds the columns of its vocabulary rows, as user code sees them: a tensor [..., V].

What leaves the last dimension alone (types, views of the leading dimensions, scaling, tanh) acts on the shard;
`F.cross_entropy` computes its loss from shards; every other function receives the whole logits, gathered over the
group: a new tensor, so that functions that would change it or a view of it in place are refused. `clone()` and
`to(copy=True)` return plain whole logits, as what is copied is usually changed: generation of transformers sets columns
of a copy to -inf.
All ranks run the same code, so that all of them enter these collectives.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.collectives import carrier
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.cross_entropy import Reduction, sharded_cross_entropy
from heterotp_trainer.tensor_parallel.torch_functions import FACTS, name_of


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# functions of one tensor, element by element: (logits), (logits, scalar)
ELEMENTWISE = _words(
    "float double half bfloat16 to type contiguous detach data neg neg_ tanh tanh_ sigmoid sigmoid_ mul mul_ div div_ "
    "add add_ sub sub_ clamp clamp_ fill_ zero_ true_divide __mul__ __rmul__ __imul__ __truediv__ __itruediv__ __add__ "
    "__radd__ __iadd__ __sub__ __isub__ __neg__ requires_grad_"
)
# functions that change their tensor without a name that ends with _, or a property of it
CHANGES = _words(
    "__setitem__ __delitem__ __set__ __iadd__ __isub__ __imul__ __itruediv__ __idiv__ __ifloordiv__ __imod__ __ipow__ "
    "__iand__ __ior__ __ixor__ __ilshift__ __irshift__ register_hook retain_grad"
)
GRADIENT_HOOKS = _words("register_hook retain_grad")  # of logits they would act on a copy; of a part they are right
SHAPES = _words("view reshape flatten unsqueeze squeeze unflatten __getitem__ select narrow")
VIEWS = SHAPES | _words(  # return tensors of the same memory, some of them in a tuple
    "transpose permute movedim swapaxes t T mT H mH expand expand_as view_as diagonal chunk split tensor_split "
    "unbind __iter__ detach data squeeze_ unfold"
)
OF_SHARD = _words("requires_grad grad_fn is_leaf")


class _Gather(torch.autograd.Function):
    """The whole logits [..., V] from shards [..., V_i]; each rank's gradient is its part of dY, equal on all ranks."""

    @staticmethod
    def forward(ctx: Any, shard: Tensor, tp: TPContext, rows: int) -> Tensor:
        ctx.own = _own_rows(tp, tp.rank).to(shard.device)
        most = max(tp.unit_plan.counts("vocab"))
        padded = shard.new_zeros(most, *shard.shape[:-1])
        padded[: shard.shape[-1]] = shard.movedim(-1, 0)
        sent = padded.to(carrier(tp)).view(torch.uint8) if padded.numel() else padded  # bytes: gloo may lack bf16
        with phase(tp.clock, "wait"), tp.where.waiting("whole logits"):
            every = [torch.empty_like(sent) for _ in range(tp.ranks)]
            dist.all_gather(every, sent, group=tp.group)
            tp.device.settle_collective(sent.nbytes * tp.ranks, tp.ranks)
        whole = shard.new_empty(rows, *shard.shape[:-1])
        for rank, part in enumerate(every):
            owned = _own_rows(tp, rank).to(shard.device)
            whole[owned] = part.view(shard.dtype).to(shard.device)[: len(owned)]
        return whole.movedim(0, -1).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad.index_select(-1, ctx.own), None, None


def _own_rows(tp: TPContext, rank: int) -> Tensor:
    ranges = tp.unit_plan.ranges("vocab", rank)
    return torch.cat([torch.arange(0), *(torch.arange(start, stop) for start, stop in ranges)])


class ShardedLogits(Tensor):
    """Logits [..., V], of which this rank holds `shard` [..., V_i]."""

    shard: Tensor
    tp: TPContext

    @staticmethod
    def __new__(cls, shard: Tensor, tp: TPContext, rows: int) -> "ShardedLogits":
        made: ShardedLogits = Tensor._make_wrapper_subclass(
            cls, (*shard.shape[:-1], rows), dtype=shard.dtype, device=shard.device
        )
        made.shard, made.tp = shard, tp
        return made

    def __init__(self, shard: Tensor, tp: TPContext, rows: int) -> None:
        pass  # all is done by __new__

    def whole(self) -> Tensor:
        """Return the whole logits [..., V], gathered over the group (all ranks)."""
        gathered: Tensor = _Gather.apply(self.shard, self.tp, self.shape[-1])
        return gathered

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]  # no collective: a debugger may call it on one rank
        return f"ShardedLogits(shape={tuple(self.shape)}, held here: {tuple(self.shard.shape)})"

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Act on the shard where that is possible, else on the gathered logits; see the module."""
        kwargs = kwargs or {}
        name = name_of(func)
        first = args[0] if args else None
        if isinstance(first, ShardedLogits):
            if name in FACTS:
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **kwargs)
            if name in OF_SHARD:
                return getattr(first.shard, name)
            if name in ELEMENTWISE and _scalars(args[1:], kwargs) and not kwargs.get("copy"):
                return _rewrapped(first, func(first.shard, *args[1:], **kwargs))
            if name in SHAPES and (found := _reshaped(first, func, name, args[1:], kwargs)) is not None:
                return found
        if func is F.cross_entropy and (loss := _loss(*args, **kwargs)) is not None:
            return loss
        _refuse_changes(name, args, kwargs)
        wholes: list[Tensor] = []
        result = func(*_gathered(args, wholes), **_gathered(kwargs, wholes))
        return _views_marked(result, wholes) if name in VIEWS else result

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        raise NotImplementedError(f"{func} on sharded logits: call logits.whole() first")


class GatheredPart(Tensor):
    """A view of gathered logits, as `logits[:, 3]`: what would change it is refused, for it would be lost."""

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute as with a plain tensor; the result is one, but for a further view."""
        if any(issubclass(each, ShardedLogits) for each in types):
            return NotImplemented  # which gathers them first
        kwargs, name = kwargs or {}, name_of(func)
        if name not in GRADIENT_HOOKS:
            _refuse_changes(name, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
            return _views_marked(result, args[:1]) if name in VIEWS else result


def _views_marked(result: Any, sources: Sequence[Tensor]) -> Any:
    """Return the result of a view, whose tensors are GatheredParts where they share memory with what was viewed."""
    if isinstance(result, Tensor):
        memory = {each.untyped_storage().data_ptr() for each in sources}
        return result.as_subclass(GatheredPart) if result.untyped_storage().data_ptr() in memory else result
    if isinstance(result, Iterator):
        return (_views_marked(each, sources) for each in result)
    return type(result)(_views_marked(each, sources) for each in result)


def _refuse_changes(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise InputError for a function that would change gathered logits, which are thrown away afterwards."""
    changed = [kwargs.get("out")]
    if name in CHANGES or kwargs.get("inplace") or (name.endswith("_") and not name.endswith("__")):
        changed += [*args, *kwargs.values()][:1]
    flat = [part for each in changed for part in (each if isinstance(each, (list, tuple)) else [each])]
    if any(isinstance(each, (ShardedLogits, GatheredPart)) for each in flat):
        raise InputError(
            f"logits: {name} would change a copy, since each rank holds some columns only: make them whole first: "
            "logits = logits.clone()"
        )


def _rewrapped(like: ShardedLogits, shard: Any) -> ShardedLogits:
    return like if shard is like.shard else ShardedLogits(shard, like.tp, like.shape[-1])


def _scalars(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether no argument is a tensor of several values, nor one whose gradient is a sum over all columns."""
    values = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    return all(not isinstance(each, ShardedLogits) and each.dim() == 0 and not each.requires_grad for each in values)


def _reshaped(
    logits: ShardedLogits, func: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> ShardedLogits | None:
    """Return a view in which the last dimension is still the vocabulary; None where it is none."""
    rows, shard = logits.shape[-1], logits.shard
    if name == "__getitem__":
        return _rewrapped(logits, shard[args[0]]) if _leaves_last(args[0], logits.dim()) else None
    viewed = func(torch.empty(logits.shape, dtype=logits.dtype, device="meta"), *args, **kwargs)
    target = viewed.shape
    if not target or target[-1] != rows or target[:-1].numel() != logits.shape[:-1].numel():
        return None
    if viewed.dtype != logits.dtype:  # the bits as another type
        return None
    return _rewrapped(logits, shard.reshape(*target[:-1], shard.shape[-1]))


def _leaves_last(index: Any, dims: int) -> bool:
    """Return whether an index takes all of the last dimension, where the vocabulary is."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if not all(part is None or part is Ellipsis or isinstance(part, (int, slice, Tensor)) for part in parts):
        return False
    last = parts[-1] if parts else slice(None)
    if isinstance(last, slice) and last == slice(None):
        return True
    if any(part is Ellipsis for part in parts) and last is not Ellipsis:
        return False
    return sum(map(_dims_of, parts)) < dims


def _dims_of(part: Any) -> int:
    """Return how many dimensions a part of an index takes."""
    if isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8):
        return part.dim()
    return 0 if part is None or part is Ellipsis else 1


def _loss(
    logits: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: Any = "mean",
    label_smoothing: float = 0.0,
) -> Tensor | None:
    """Return F.cross_entropy from shards; None for what shards do not cover: weights, probabilities, [B, V, T]."""
    covered = isinstance(logits, ShardedLogits) and logits.dim() <= 2 and isinstance(target, Tensor)
    old = weight is not None or size_average is not None or reduce is not None
    if not covered or old or target.is_floating_point() or isinstance(target, ShardedLogits):
        return None
    if target.shape != logits.shape[:-1]:  # torch's own error
        F.cross_entropy(torch.zeros(()).expand(logits.shape), torch.zeros(target.shape, dtype=torch.long))
    return sharded_cross_entropy(
        logits.shard,
        target,
        logits.tp,
        logits.shape[-1],
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
    )


def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the cross-entropy of logits [..., V] for class indices [...], from shards where they are sharded.

    As torch.nn.functional.cross_entropy, with the classes in the last dimension.
    """
    flat = logits.reshape(-1, logits.shape[-1])
    options: dict[str, Any] = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "reduction": reduction}
    losses = F.cross_entropy(flat, targets.reshape(-1), **options)
    return losses.view(targets.shape) if reduction == "none" else losses


def _gathered(value: Any, wholes: list[Tensor]) -> Any:
    """Return nested arguments with whole logits, which are added to `wholes`, in place of sharded ones."""
    if isinstance(value, ShardedLogits):
        wholes.append(value.whole())
        return wholes[-1]
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_gathered(each, wholes) for each in value)
    if isinstance(value, Mapping):
        return {key: _gathered(each, wholes) for key, each in value.items()}
    return value
