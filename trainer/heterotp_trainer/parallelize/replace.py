"""Puts sharded layers in the place of a model's own, by a plan; names of parameters stay those of the plain model."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.fused import FusedColumnLinear
from heterotp_trainer.parallelize.multihead import ParallelMultiheadAttention
from heterotp_trainer.parallelize.roles import Layout, ModelPlan, Part, sizes_of
from heterotp_trainer.tensor_parallel.context import TPContext, refuse_unfit
from heterotp_trainer.tensor_parallel.gradients import mark_partial
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear, ParallelLinear, RowParallelLinear
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, shard_spec
from heterotp_trainer.tensor_parallel.vocabulary import ParallelEmbedding, ParallelLogits

PLAIN = {"weight": "weight", "bias": "bias"}
OF_ATTENTION = {"weight": "in_proj_weight", "bias": "in_proj_bias"}  # of torch.nn.MultiheadAttention
Holders = list[tuple[nn.Module, str]]


@dataclass
class Shards:
    """What is known of a model that was cut: by name of a parameter its layout, type and values as they were made.

    source: directory that the weights were read from.
    """

    tp: TPContext
    plan: ModelPlan
    layouts: dict[str, Layout] = field(default_factory=dict)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    recipes: dict[str, Any] = field(default_factory=dict)
    source: str | None = None


def shards_of(model: nn.Module) -> Shards:
    """Return what is known of a cut model; raises InputError for one that is not."""
    found = getattr(model, "_heterotp", None)
    if not isinstance(found, Shards):
        raise InputError(f"{type(model).__name__}: it is not parallelized: call heterotp.parallelize(model, session)")
    return found


def holders(model: nn.Module) -> dict[str, Holders]:
    """Return by name of each parameter the modules that hold it, with their attribute; a tied one has several."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[str, Holders] = {name: [] for name in names.values()}
    for module in model.modules():
        for attribute, parameter in module._parameters.items():
            if parameter is not None:
                found[names[id(parameter)]].append((module, attribute))
    return found


def put(places: Holders, parameter: nn.Parameter) -> None:
    """Set a parameter in all modules that hold it."""
    for module, attribute in places:
        module._parameters[attribute] = parameter


def cut(model: nn.Module, plan: ModelPlan, tp: TPContext) -> dict[str, Layout]:
    """Replace all parts of the plan in place; return the layout of each sharded parameter, by name.

    Parameters with values (not on the meta device) keep those of this rank's units, on the session's device. Raises
    InputError, before anything is changed, for a parameter that two parts hold and cut otherwise, and for parts that do
    not fit to layers of the context.
    """
    shared, whole = holders(model), dict(model.named_parameters())
    names = _names(model, plan, shared)
    _refuse_unfit_parts(plan, names, tp)
    made: dict[str, tuple[nn.Parameter, Part, str]] = {}  # by name of the whole parameter
    for part in plan.parts:
        module = model.get_submodule(part.name)
        if part.role == "replicated.partial":
            for parameter in module.parameters():
                mark_partial(parameter)
            continue
        new = _replaced(model, module, part, tp)
        for kind, name in names[part.name].items():
            parameter = getattr(new, kind)
            if name not in made:
                made[name] = _with_values(whole[name], parameter, part, kind, tp), part, kind
            first = made[name][0]
            if not hasattr(parameter, "makes_no_product") and hasattr(first, "makes_no_product"):
                del first.makes_no_product
            new._parameters[kind] = first
    for name, (parameter, _, _) in made.items():  # where else a tied parameter was held
        put([place for place in shared[name] if place[0]._parameters.get(place[1]) is whole[name]], parameter)
    canonical = {id(parameter): name for name, parameter in model.named_parameters()}
    plan.adapt(model)
    return {
        canonical[id(parameter)]: part.layout if kind == "weight" else Layout(part.layout.sections)
        for parameter, part, kind in made.values()
    }


def _names(model: nn.Module, plan: ModelPlan, shared: dict[str, Holders]) -> dict[str, dict[str, str]]:
    """Return by name of each part the names of its weight and bias among the model's parameters."""
    tied = {(id(module), attribute): name for name, places in shared.items() for module, attribute in places}
    found: dict[str, dict[str, str]] = {}
    for part in plan.parts:
        module = model.get_submodule(part.name)
        attributes = OF_ATTENTION if isinstance(module, nn.MultiheadAttention) else PLAIN
        held = {kind: tied.get((id(module), attribute)) for kind, attribute in attributes.items()}
        found[part.name] = {kind: name for kind, name in held.items() if name is not None}
    return found


def _refuse_unfit_parts(plan: ModelPlan, names: dict[str, dict[str, str]], tp: TPContext) -> None:
    """Raise InputError where the context has no place for a part, or where parts cut a parameter in several ways."""
    cuts: dict[str, ShardSpec | None] = {}
    for part in plan.parts:
        if part.units:
            refuse_unfit(tp, part.name, part.family, part.units)
        for kind, name in names[part.name].items() if part.role != "replicated.partial" else ():
            spec = None if kind == "bias" and part.role.endswith(".row") else part.spec
            if cuts.setdefault(name, spec) != spec:
                raise InputError(f"plan: {part.name}: its {kind} is that of another layer, which is cut otherwise")


def _replaced(model: nn.Module, module: nn.Module, part: Part, tp: TPContext) -> nn.Module:
    """Put the sharded layer, without values, in the place of a module; return it."""
    if part.role == "vocab.embedding":
        assert isinstance(module, nn.Embedding)
        return ParallelEmbedding.adopt(module, tp, name=part.name)
    outputs, inputs = sizes_of(module)
    if isinstance(module, nn.MultiheadAttention):
        fused = FusedColumnLinear(
            tp, part.spec, inputs, name=part.name, seed=None, bias=module.in_proj_bias is not None
        )
        fused.sections = part.layout.sections
        ParallelMultiheadAttention.adopt(module, fused)
        return fused
    bias = getattr(module, "bias", None) is not None
    new: ParallelLinear
    if part.role == "vocab.logits":
        new = ParallelLogits(tp, outputs, inputs, name=part.name, seed=None, bias=bias)
    elif part.role.endswith(".row"):
        new = RowParallelLinear(tp, part.spec, outputs, name=part.name, seed=None, bias=bias)
    else:
        column = FusedColumnLinear if part.layout.sections > 1 else ColumnParallelLinear
        new = column(tp, part.spec, inputs, name=part.name, seed=None, bias=bias)
        if isinstance(new, FusedColumnLinear):
            new.sections = part.layout.sections
    new.train(module.training)
    for parent in list(model.modules()):  # a module that several hold, too
        for child, held in parent._modules.items():
            if held is module:
                parent._modules[child] = new
    return new


def _with_values(whole: Tensor, shard: nn.Parameter, part: Part, kind: str, tp: TPContext) -> nn.Parameter:
    """Return the shard's parameter with this rank's values of a whole one, where that has any."""
    spec = shard_spec(shard)
    dtype = master_dtype(whole.dtype)
    if whole.is_meta:
        value = torch.empty(shard.shape, dtype=dtype, device="meta")
    elif spec is None:
        value = whole.detach().to(tp.device.torch_device, dtype, copy=True)
    else:
        layout = part.layout if kind == "weight" else Layout(part.layout.sections)
        value = spec.cut(layout.canonical(whole.detach(), part.spec), tp.owned(spec.family))
        value = value.to(tp.device.torch_device, dtype)
    return with_marks(nn.Parameter(value, requires_grad=whole.requires_grad), shard)


def master_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which weights are trained: fp32 in place of shorter ones."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def with_marks(parameter: nn.Parameter, like: nn.Parameter) -> nn.Parameter:
    """Return a parameter with our marks of another one: how it is cut, and whether its gradient is a part of a sum."""
    for mark in ("heterotp", "makes_no_product", "heterotp_partial"):
        if hasattr(like, mark):
            setattr(parameter, mark, getattr(like, mark))
    return parameter


def whole_shape(parameter: Tensor, layout: Layout | None = None) -> tuple[int, ...]:
    """Return the shape of the whole parameter as the plain model holds it."""
    spec = shard_spec(parameter)
    shape = tuple(parameter.shape) if spec is None else spec.full_shape(parameter.shape)
    return shape[::-1] if layout is not None and layout.transposed and len(shape) == 2 else shape


def replicated_values(model: nn.Module, device: torch.device) -> Iterator[str]:
    """Move parameters and buffers that have values to a device, in the type they are trained in; yield their names."""
    for name, places in holders(model).items():
        module, attribute = places[0]
        parameter = module._parameters[attribute]
        assert parameter is not None
        if not parameter.is_meta:
            parameter.data = parameter.data.to(device, master_dtype(parameter.dtype))
            yield name
    for module in model.modules():
        for attribute, buffer in module._buffers.items():
            if buffer is not None and not buffer.is_meta:
                module._buffers[attribute] = buffer.to(device)
