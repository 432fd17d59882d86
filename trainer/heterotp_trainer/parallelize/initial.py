"""How a model would draw its own initial values, recorded on the whole model and repeated on shards.

The model's own code of initialization runs once while its parameters are on the meta device, where it costs nothing.
What it does to each parameter (normal_, zero_, ...) is the recipe. It is repeated block by block of units, each with a
generator of its own, so that values depend on seed, name and unit, not on the shares, and torch's global generator is
not touched.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.roles import Layout
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec

BLOCK_VALUES = 1 << 20  # about so many values are drawn by one generator
TRUNCATED = "trunc_normal_"
DRAWS = ("normal_", "uniform_", TRUNCATED)
REPEATED = frozenset((*DRAWS, "zero_", "fill_", "erfinv_", "mul_", "add_", "div_", "sub_", "clamp_", "clamp_min_"))


@dataclass(frozen=True)
class Step:
    """One in-place operation on a parameter, or on one row of it."""

    name: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    row: int | None = None


@dataclass
class Recipe:
    """The operations that give a parameter its initial values; shape: of the whole parameter as the model holds it."""

    shape: tuple[int, ...]
    steps: list[Step] = field(default_factory=list)


class _Recorder(TorchDispatchMode):
    """Notes in-place operations on the parameters of a model while its initialization runs."""

    def __init__(self, recipes: Mapping[int, Recipe]) -> None:
        super().__init__()
        self._recipes = recipes
        self._rows: dict[int, tuple[Tensor, int, int]] = {}  # a row that was taken: itself, its parameter, its number

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, options = func._schema.name.removeprefix("aten::"), dict(kwargs or {})
        out = func(*args, **options)
        target = args[0] if args else None
        if name == "select" and id(target) in self._recipes and args[1] == 0:
            self._rows[id(out)] = out, id(target), args[2]
        elif name.endswith("_") and isinstance(target, Tensor):
            self._note(target, name, tuple(args[1:]), options)
        return out

    def __enter__(self) -> "_Recorder":
        self._trunc_normal = nn.init._no_grad_trunc_normal_  # on the meta device it does nothing that could be seen
        nn.init._no_grad_trunc_normal_ = cast(Any, self._note_trunc_normal)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        nn.init._no_grad_trunc_normal_ = self._trunc_normal
        super().__exit__(*error)

    def _note_trunc_normal(self, tensor: Tensor, *arguments: Any, **options: Any) -> Tensor:
        if tensor.is_meta:
            self._note(tensor, TRUNCATED, arguments[:4], options)
            return tensor
        return self._trunc_normal(tensor, *arguments, **options)

    def _note(self, target: Tensor, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        options.pop("generator", None)
        _, parameter, row = self._rows.get(id(target), (target, id(target), None))
        if parameter in self._recipes:
            self._recipes[parameter].steps.append(Step(name, arguments, options, row))


def recorded(model: nn.Module) -> dict[str, Recipe]:
    """Return the recipe of each parameter on the meta device, by name, from the model's own initialization."""
    meta = {name: parameter for name, parameter in model.named_parameters() if parameter.is_meta}
    recipes = {id(parameter): Recipe(tuple(parameter.shape)) for parameter in meta.values()}
    initialize: Any = getattr(model, "_init_weights", None)
    with torch.no_grad(), _Recorder(recipes):
        for module in reversed(list(model.modules())):  # a module's own way comes after those of its parts
            if not any(parameter.is_meta for parameter in module.parameters()):
                continue
            if initialize is not None:
                initialize(module)
                continue
            reset: Any = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
            if reset is not None:
                reset()
    return {name: recipes[id(parameter)] for name, parameter in meta.items()}


def drawn(
    name: str,
    recipe: Recipe,
    seed: int,
    dtype: torch.dtype,
    spec: ShardSpec | None = None,
    layout: Layout | None = None,
    units: Sequence[int] = (),
) -> Tensor:
    """Return a parameter's initial values on the CPU: the whole one, or those of these units where it is cut.

    The values of a unit are the same whatever the units of a rank. Raises InputError for a way of initialization that
    cannot be repeated.
    """
    for step in recipe.steps:
        if step.name not in REPEATED or any(isinstance(value, Tensor) and value.dim() for value in step.arguments):
            raise InputError(f"initialize: {name}: {step.name} of its initialization cannot be repeated on shards")
    if not recipe.steps:
        raise InputError(
            f"initialize: {name}: the model does not say how it begins: its module needs reset_parameters()"
        )
    if spec is None:
        return _block(name, recipe, seed, 0, recipe.shape, dtype)
    shape = recipe.shape[::-1] if layout is not None and layout.transposed and len(recipe.shape) == 2 else recipe.shape
    per_block = max(1, BLOCK_VALUES // max(1, math.prod(shape) // spec.total_units))
    out = torch.empty(spec.shape(shape, len(units)), dtype=dtype)
    held: tuple[int, Tensor | None] = (-1, None)
    rows = spec.rows_per_unit
    for place, unit in enumerate(units):
        number, offset = divmod(unit, per_block)
        if held[0] != number:
            count = min(per_block, spec.total_units - number * per_block)
            held = number, _block(name, recipe, seed, number, spec.shape(shape, count), dtype)
        assert held[1] is not None
        out.narrow(spec.dim, place * rows, rows).copy_(held[1].narrow(spec.dim, offset * rows, rows))
    for step in recipe.steps:
        if step.row is not None and spec.dim == 0 and rows == 1 and step.row in units:
            _apply(out[list(units).index(step.row)], step, None)
    return out


def _block(name: str, recipe: Recipe, seed: int, number: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    digest = hashlib.blake2b(f"{seed}/{name}/{number}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    out = torch.zeros(tuple(shape), dtype=torch.float32)
    for step in recipe.steps:
        if step.row is None:
            _apply(out, step, generator)
        elif tuple(shape) == recipe.shape:
            _apply(out[step.row], step, generator)
    return out.to(dtype)


def _apply(target: Tensor, step: Step, generator: torch.Generator | None) -> None:
    options = {**step.options, "generator": generator} if step.name in DRAWS else step.options
    operation = nn.init.trunc_normal_ if step.name == TRUNCATED else getattr(Tensor, step.name)
    operation(target, *step.arguments, **options)
