"""Which module of a model plays which role: the plan by which its linears and embeddings are cut into units."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from torch import Tensor, nn

from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.refusals import refuse_module
from heterotp_trainer.plans.unit_plan import Family
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec
from heterotp_trainer.tensor_parallel.vocabulary import refuse_options

Role = Literal[
    "heads.column", "heads.row", "ffn.column", "ffn.row", "vocab.embedding", "vocab.logits", "replicated.partial"
]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class HeadSizes:
    """Attention: units are `groups` key/value heads, each with `queries` query heads of `width`."""

    groups: int
    queries: int
    width: int

    @property
    def rows(self) -> int:
        """Columns of the output projection: all query heads side by side."""
        return self.groups * self.queries * self.width


@dataclass(frozen=True)
class Layout:
    """How the model itself holds a matrix whose shard is one unit after another, [outputs, inputs].

    sections: each unit's rows lie in so many parts of the matrix, as in [all q | all k | all v] (3). transposed: the
    model holds [inputs, outputs].
    """

    sections: int = 1
    transposed: bool = False

    def canonical(self, whole: Tensor, spec: ShardSpec) -> Tensor:
        """Return a whole tensor as it is in the model, one unit after another."""
        turned = whole.t() if self.transposed and whole.dim() == 2 else whole
        if self.sections == 1 or spec.dim != 0:
            return turned
        shape = (self.sections, spec.total_units, spec.rows_per_unit // self.sections, *turned.shape[1:])
        return turned.reshape(shape).transpose(0, 1).reshape(turned.shape)

    def of_model(self, canonical: Tensor, spec: ShardSpec) -> Tensor:
        """Return a whole tensor, one unit after another, as the model holds it."""
        turned = canonical
        if self.sections > 1 and spec.dim == 0:
            shape = (spec.total_units, self.sections, spec.rows_per_unit // self.sections, *turned.shape[1:])
            turned = turned.reshape(shape).transpose(0, 1).reshape(turned.shape)
        return turned.t() if self.transposed and turned.dim() == 2 else turned


@dataclass(frozen=True)
class Part:
    """One module of the plan. family None: a replicated module inside of a sharded region."""

    name: str
    role: Role
    units: int = 0
    rows_per_unit: int = 1
    layout: Layout = field(default_factory=Layout)

    @property
    def family(self) -> Family:
        """The family of its units."""
        family: Family = self.role.split(".")[0]  # type: ignore[assignment]
        return family

    @property
    def spec(self) -> ShardSpec:
        """How its weight is cut."""
        return ShardSpec(self.family, 1 if self.role.endswith(".row") else 0, self.rows_per_unit, self.units)


@dataclass(frozen=True)
class ModelPlan:
    """All parts of a model in the order of its modules; source: where the plan comes from, for messages.

    adapt: called with the model after its parts were replaced, for code that hard-codes a width.
    """

    parts: tuple[Part, ...]
    source: str
    adapt: Callable[[nn.Module], None] = lambda model: None


def is_linear(module: nn.Module) -> bool:
    """Return whether a module is a linear that can be cut: torch's, or the transposed one of transformers' GPT-2."""
    return isinstance(module, nn.Linear) or (type(module).__name__ == "Conv1D" and hasattr(module, "nf"))


def sizes_of(module: nn.Module) -> tuple[int, int]:
    """Return outputs and inputs of a linear."""
    weight = module.in_proj_weight if isinstance(module, nn.MultiheadAttention) else module.weight
    assert isinstance(weight, Tensor)
    rows, columns = weight.shape
    return (columns, rows) if _is_transposed(module) else (rows, columns)


def _is_transposed(module: nn.Module) -> bool:
    return not isinstance(module, (nn.Linear, nn.MultiheadAttention))


def plan_of(
    model: nn.Module,
    roles: Mapping[str, Role],
    heads: HeadSizes | None,
    source: str,
    *,
    fused: Mapping[str, int] | None = None,
    adapt: Callable[[nn.Module], None] = lambda model: None,
) -> ModelPlan:
    """Return the plan of a model whose modules play these roles; see InputError for what does not fit.

    fused: last names of modules that hold q, k and v in one matrix, with the number of its sections: 1 where each
    head's three parts are side by side.
    """
    modules = dict(model.named_modules())
    roles = _by_first_name(model, roles, source)
    hidden = _hidden_units(modules, roles)
    parts = []
    for name, module in modules.items():
        if name in roles:
            sections = (fused or {}).get(name.rsplit(".", 1)[-1])
            parts.append(_part(name, module, roles[name], heads, hidden, sections, source))
    _refuse_unlike_vocabularies(parts, source)
    return ModelPlan(tuple(parts), source, adapt)


def _by_first_name(model: nn.Module, roles: Mapping[str, Role], source: str) -> dict[str, Role]:
    """Return the role of each module by the first of its names, of which it has several where others hold it, too."""
    first: dict[nn.Module, str] = {}
    found: dict[str, Role] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        own = first.setdefault(module, name)
        if name in roles and found.setdefault(own, roles[name]) != roles[name]:
            raise InputError(
                f"plan ({source}): {name}: {roles[name]}: it is the same module as {own}, which is {found[own]}: one "
                "module has one role"
            )
    return found


def _refuse_unlike_vocabularies(parts: Iterable[Part], source: str) -> None:
    vocabulary = [part for part in parts if part.role.startswith("vocab")]
    for part in vocabulary[1:]:
        if part.units != vocabulary[0].units:
            what = f"{part.units} rows of the vocabulary, but {vocabulary[0].name} has {vocabulary[0].units}"
            raise InputError(f"plan ({source}): {part.name}: {part.role}: {what}: leave one of them out")


def _hidden_units(modules: Mapping[str, nn.Module], roles: Mapping[str, Role]) -> int:
    """Return the number of hidden units of a feed-forward network, by its row-parallel linear."""
    for name, role in roles.items():
        if role == "ffn.row" and is_linear(modules[name]):
            return sizes_of(modules[name])[1]
    return 0


def _part(
    name: str, module: nn.Module, role: Role, heads: HeadSizes | None, hidden: int, sections: int | None, source: str
) -> Part:
    said = f"plan ({source}): {name}: {role}"
    if role == "replicated.partial":
        return Part(name, role)
    refuse_module(module, said)
    if role == "vocab.embedding":
        if not isinstance(module, nn.Embedding):
            raise InputError(f"{said}: it is a {type(module).__name__}: only torch.nn.Embedding can be cut")
        refuse_options(name, module)
        return Part(name, role, module.num_embeddings)
    if isinstance(module, nn.MultiheadAttention) and role == "heads.column" and module._qkv_same_embed_dim:
        sections = 3
    elif not is_linear(module):
        raise InputError(f"{said}: it is a {type(module).__name__}: only linears can be cut")
    outputs, inputs = sizes_of(module)
    layout = Layout(sections or 1, _is_transposed(module))
    if role == "vocab.logits":
        return Part(name, role, outputs, 1, layout)
    if role.startswith("ffn"):
        return _ffn_part(Part(name, role, hidden, 1, layout), outputs if role == "ffn.column" else inputs, said)
    if heads is None:
        raise InputError(f"{said}: the sizes of its heads are not known: give heads=, kv_heads= and head_dim=")
    return _heads_part(Part(name, role, heads.groups, 1, layout), outputs, inputs, heads, sections, said)


def _ffn_part(part: Part, width: int, said: str) -> Part:
    if width == part.units:
        return part
    if width and width == 2 * part.units:
        raise InputError(f"{said}: {width} outputs are gate and up in one matrix: give them a linear each")
    raise InputError(f"{said}: its width is {width}, but the feed-forward networks have {part.units} hidden units")


def _heads_part(part: Part, outputs: int, inputs: int, heads: HeadSizes, sections: int | None, said: str) -> Part:
    """Return a part of attention: q, k, v, all in one, or the output projection."""
    sizes = f"{heads.groups} key/value heads x {heads.queries} query heads each x {heads.width}"
    width = outputs if part.role == "heads.column" else inputs
    allowed = [heads.queries * heads.width]
    if part.role == "heads.column":
        allowed = [(heads.queries + 2) * heads.width] if sections else [heads.queries * heads.width, heads.width]
    per_unit, rest = divmod(width, heads.groups)
    if rest or per_unit not in allowed:
        fits = " or ".join(str(each * heads.groups) for each in dict.fromkeys(allowed))
        what = (
            f"{said}: it has {width} {'outputs' if part.role == 'heads.column' else 'inputs'}, but {sizes} make {fits}"
        )
        if part.role == "heads.column" and not sections and width == (heads.queries + 2) * heads.width * heads.groups:
            what += (
                ": so many are query, key and value in one linear: give them a linear each, or cut the layer by hand"
            )
        raise InputError(what)
    return Part(part.name, part.role, heads.groups, per_unit, part.layout)
