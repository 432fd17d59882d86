"""Compares a sharded model with the unsharded one before training: a small copy, one random batch, in float64.

All ranks of the gang take part. The copy of a transformers model has its classes and a config with few heads, units,
rows and layers; any other model is copied as it is. Compared are the outputs of all row-parallel linears, which is
what goes into the residual stream before any norm, the outputs of the model, and all gradients.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from heterotp_trainer.checkpoint.generators import drawing_as_seeded
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.errors import InputError
from heterotp_trainer.model.checks import DrawCheck
from heterotp_trainer.parallelize.initial import Recipe, Step, drawn
from heterotp_trainer.parallelize.pretrained import fill
from heterotp_trainer.parallelize.replace import Shards, cut, shards_of
from heterotp_trainer.parallelize.roles import ModelPlan
from heterotp_trainer.plans.unit_plan import UnitPlan, balanced_counts
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.gradients import sum_partial
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec

EXACT, OF_GRADIENTS = 1e-10, 1e-5  # largest difference over the largest value; code of models casts to fp32 in places
TINY = 1e-8
LAYERS, GROUPS, WIDTH, HIDDEN, ROWS = 2, 4, 8, 24, 64  # of the small copy
TOKENS, SAMPLES = 8, 2
MOST_PARAMETERS = 200_000_000
SEED = 1
TARGETS = ("targets", "target", "labels", "y")  # names of what the ids of a language model should be

Make = Callable[[], nn.Module]
Plan = Callable[[nn.Module], ModelPlan]
Inputs = Mapping[str, Any] | tuple[Any, ...]


@dataclass(frozen=True)
class Compared:
    """The largest difference that was found, over the largest value, and in how many layers was looked."""

    layers: int
    error: float


def check(model: nn.Module, plan: Plan, tp: TPContext, inputs: Inputs | None = None) -> Compared:
    """Compare small copies of a model, sharded and not, under shares by speed and with a rank that owns no unit.

    plan: returns the plan of a copy. inputs: of one call, for models whose inputs do not follow from a config (all
    ranks). Raises InputError naming the first layer that differs, or a random operation in a sharded region.
    """
    make, batch = copies(model), inputs if inputs is not None else inputs_for(model)
    found = [_compare(make, plan, batch, tp, idle) for idle in ([False, True] if tp.ranks > 1 else [False])]
    return Compared(found[0].layers, max(each.error for each in found))


def copies(model: nn.Module) -> Make:
    """Return a function that makes a copy to check with, in float64, without values where the model has none."""
    config = getattr(model, "config", None)
    if hasattr(config, "to_dict") and hasattr(type(model), "_from_config"):
        small = shrunk(config)

        def make() -> nn.Module:
            with torch.device("meta"):
                made: nn.Module = type(model)._from_config(small)  # type: ignore[attr-defined]
            return made.double()

        return make
    if (size := sum(parameter.numel() for parameter in model.parameters())) > MOST_PARAMETERS:
        raise InputError(f"check: the model has {size} parameters: check one of the same classes with smaller sizes")
    return lambda: copy.deepcopy(model).double()


def shrunk(config: Any) -> Any:
    """Return a transformers config of the same architecture with small sizes; head groups keep their query heads."""
    small = copy.deepcopy(config)
    names = {*small.to_dict(), *getattr(small, "attribute_map", {})}
    heads = small.num_attention_heads
    groups = getattr(small, "num_key_value_heads", None) or heads
    kept = min(groups, GROUPS) * (heads // groups)
    sizes = {"num_hidden_layers": LAYERS, "num_attention_heads": kept, "num_key_value_heads": min(groups, GROUPS)}
    sizes |= {"hidden_size": kept * WIDTH, "head_dim": WIDTH, "intermediate_size": HIDDEN, "n_inner": HIDDEN}
    sizes |= {"vocab_size": ROWS, "pooler_output_size": kept * WIDTH}
    for name, size in sizes.items():
        if name in names:
            setattr(small, name, size)
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        if isinstance(getattr(small, name, None), int):
            setattr(small, name, min(getattr(small, name), ROWS - 1))
    if isinstance(getattr(small, "layer_types", None), list):
        small.layer_types = small.layer_types[:LAYERS]
    return small


def inputs_for(model: nn.Module) -> Inputs:
    """Return one random batch for a model, by its config or its embedding; raises InputError where neither tells."""
    generator = torch.Generator().manual_seed(SEED)
    config: Any = getattr(model, "config", None)
    if getattr(model, "main_input_name", "") == "pixel_values":
        size = config.image_size if isinstance(config.image_size, (list, tuple)) else (config.image_size,) * 2
        images = torch.randn(SAMPLES, config.num_channels, *size, generator=generator, dtype=torch.float64)
        return {"pixel_values": images, "labels": torch.arange(SAMPLES) % max(1, config.num_labels)}
    embedding = next((each for each in model.modules() if isinstance(each, nn.Embedding)), None)
    plain = config is None or not hasattr(config, "to_dict")
    if embedding is None or (plain and not _takes_ids(model)):
        raise InputError("check: the inputs of this model are not known: give check=(tensors of one call)")
    rows = embedding.num_embeddings if plain else ROWS
    ids = torch.randint(rows, (SAMPLES, TOKENS), generator=generator)
    name = type(model).__name__
    if plain:
        return (ids,) * max(1, len(_required(model)))
    return {"input_ids": ids, "labels": ids} if "LM" in name else {"input_ids": ids}


def _takes_ids(model: nn.Module) -> bool:
    """Return whether a call needs ids alone, or ids and what they should be."""
    names, takes_any = _required(model), bool(inspect.signature(model.forward).parameters)
    return takes_any and (len(names) < 2 or (len(names) == 2 and names[1] in TARGETS))


def _required(model: nn.Module) -> list[str]:
    """Return the names of the arguments that a call of the model must give."""
    every = inspect.signature(model.forward).parameters.values()
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [each.name for each in every if each.kind in kinds and each.default is each.empty]


def _compare(make: Make, plan: Plan, inputs: Inputs, tp: TPContext, idle: bool) -> Compared:
    """Compare two copies; idle: the last rank owns no unit."""
    plain, sharded = make(), make()
    found = plan(sharded)
    context = _context(found, tp, idle)
    for each, own, parts in (
        (plain, TPContext(None, 0, 1, tp.device, NullClock(), UnitPlan.empty(1)), ()),
        (sharded, context, found.parts),
    ):
        layouts = cut(each, ModelPlan(parts, found.source, found.adapt if parts else lambda model: None), own)
        each._heterotp = Shards(own, found, layouts)  # type: ignore[assignment]
        _draw(each)
        each.train()
    DrawCheck(sharded, tp.device.torch_device)
    rows = [part.name for part in found.parts if part.role.endswith(".row")]
    if not rows:
        raise InputError("check: the plan has no row-parallel linear, whose outputs could be compared")
    mine, theirs = (_outputs(each, rows, inputs, tp) for each in (sharded, plain))
    compared = [name for name in rows if name in mine and name in theirs]  # torch's attention calls no linear
    error = max(_differing(name, mine[name], theirs[name]) for name in [*compared, "the output"])
    _compare_gradients(sharded, plain)
    return Compared(len(compared), error)


def _context(plan: ModelPlan, tp: TPContext, idle: bool) -> TPContext:
    """Return a context in float64 of the same gang, whose shares follow the speeds, or leave the last rank idle."""
    units = {part.family: part.units for part in plan.parts if part.units}
    speeds = tp.speeds or (1.0,) * tp.ranks
    counts = {family: balanced_counts(count, speeds[: tp.ranks - idle]) for family, count in units.items()}
    shares = [
        counts[family] + [0] * idle if family in counts else [0] * tp.ranks for family in ("heads", "ffn", "vocab")
    ]
    unit_plan = UnitPlan.from_counts(*shares)
    context = TPContext(tp.group, tp.rank, tp.ranks, tp.device, NullClock(), unit_plan, torch.float64)
    context.control_group, context.where = tp.control_group, tp.where
    return context


def _draw(model: nn.Module) -> None:
    """Give parameters without values random ones that show errors, also in biases and norms; by name, as everywhere."""
    shards = shards_of(model)
    values = {}
    for name, parameter in model.named_parameters():
        if not parameter.is_meta:
            continue
        spec, layout = shard_spec(parameter), shards.layouts.get(name)
        shape = tuple(parameter.shape) if spec is None else spec.full_shape(parameter.shape)
        steps = [Step("normal_", (0.0, 0.2), {})] + [Step("add_", (1.0,), {})] * (len(shape) == 1)
        stored = shape[::-1] if layout is not None and layout.transposed and len(shape) == 2 else shape
        whole = drawn(name, Recipe(stored, steps), SEED, torch.float64)
        if spec is not None and layout is not None:
            whole = spec.cut(layout.canonical(whole, spec), shards.tp.owned(spec.family))
        values[name] = whole
    fill(model, shards, values)


def _outputs(model: nn.Module, rows: list[str], inputs: Inputs, tp: TPContext) -> dict[str, Tensor]:
    """Return the outputs of these layers and of the model in one call, and run backward."""
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        return lambda module, arguments, output: found.__setitem__(name, output.detach())

    hooks = [model.get_submodule(name).register_forward_hook(keep(name)) for name in rows]
    device = tp.device.torch_device
    with drawing_as_seeded(SEED, device):  # dropout of whole activations: the same masks in both models
        try:
            output = model(**_on(inputs, device)) if isinstance(inputs, Mapping) else model(*_on(inputs, device))
        except RuntimeError as error:
            said = str(error).splitlines()[0]
            raise InputError(f"check: the forward of {type(model).__name__} fails on shards: {said}") from error
    for hook in hooks:
        hook.remove()
    loss, found["the output"] = _loss_and_output(output)
    loss.backward()
    return found


def _on(inputs: Any, device: torch.device) -> Any:
    if isinstance(inputs, Mapping):
        return {name: _on(each, device) for name, each in inputs.items()}
    if isinstance(inputs, (tuple, list)):
        return type(inputs)(_on(each, device) for each in inputs)
    return inputs.to(device) if isinstance(inputs, Tensor) else inputs


def _loss_and_output(output: Any) -> tuple[Tensor, Tensor]:
    """Return a scalar for backward, and the main output of a call."""
    loss = getattr(output, "loss", None)
    if isinstance(loss, Tensor):
        return loss, output.logits.detach() + 0.0
    first = output if isinstance(output, Tensor) else output[0]
    whole = first + 0.0  # gathers logits
    return (
        whole * torch.linspace(0.5, 1.5, whole.shape[-1], device=whole.device, dtype=whole.dtype)
    ).sum(), whole.detach()


def _differing(name: str, mine: Tensor, whole: Tensor) -> float:
    """Return the difference over the largest value; raises InputError where it is too large."""
    if mine.shape != whole.shape:
        raise InputError(f"check: {name}: its output is {list(mine.shape)}, unsharded {list(whole.shape)}")
    error = float((mine - whole).abs().max() / whole.abs().max().clamp_min(1e-30)) if whole.numel() else 0.0
    if not error <= (EXACT if name != "the output" else OF_GRADIENTS):
        raise InputError(
            f"check: {name}: it differs from the unsharded model's by {error:.1e} of its largest value: the plan is "
            "wrong, or the forward between its linears counts heads or hidden units that other ranks own"
        )
    return error if name != "the output" else 0.0


def _compare_gradients(sharded: nn.Module, plain: nn.Module) -> None:
    """Raise InputError naming the first parameter whose gradient differs."""
    shards, whole = shards_of(sharded), dict(plain.named_parameters())
    sum_partial(sharded.parameters(), shards.tp)
    # some gradients are 0 but for rounding: those of biases of keys
    least = TINY * max((float(each.grad.abs().max()) for each in whole.values() if each.grad is not None), default=0.0)
    for name, parameter in sharded.named_parameters():
        wanted, spec = whole[name].grad, shard_spec(parameter)
        if wanted is None:
            continue
        scale = wanted.abs().max().clamp_min(least)
        if spec is not None:
            wanted = spec.cut(shards.layouts[name].canonical(wanted, spec), shards.tp.owned(spec.family))
        found = torch.zeros_like(wanted) if parameter.grad is None else parameter.grad
        error = float((found - wanted).abs().max() / scale) if wanted.numel() else 0.0
        if not error <= OF_GRADIENTS:
            if parameter.grad is None:
                raise InputError(f"check: {name}: it has a gradient in the unsharded model, but none on shards")
            advice = "give its module the role replicated.partial" if spec is None else "the plan is wrong"
            raise InputError(
                f"check: the gradient of {name} differs from the unsharded model's by {error:.1e}: {advice}"
            )
