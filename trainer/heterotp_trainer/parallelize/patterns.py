"""Module names by pattern, and the plan that a user gives."""

import re
from collections.abc import Mapping

from heterotp_api.formatting import listed
from torch import nn

from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.roles import ROLES, HeadSizes, ModelPlan, Role, plan_of

MOST_NAMED = 3


def matching(pattern: str, names: Mapping[str, object], *, below: bool = False) -> list[str]:
    """Return the names that a pattern matches; `*` is one part of a name between dots.

    below: the pattern may begin below any module, as names of a base model do in a model with a head.
    """
    expression = re.compile((r"(?:.*\.)?" if below else "") + re.escape(pattern).replace(r"\*", r"[^.]+"))
    return [name for name in names if expression.fullmatch(name)]


def roles_by(patterns: Mapping[str, Role], model: nn.Module, *, below: bool = False) -> dict[str, Role]:
    """Return the role of each module that a pattern matches, by all names that it has."""
    modules = dict(model.named_modules(remove_duplicate=False))
    return {name: role for pattern, role in patterns.items() for name in matching(pattern, modules, below=below)}


def user_plan(
    model: nn.Module,
    plan: Mapping[str, str],
    heads: int | None,
    kv_heads: int | None,
    head_dim: int | None,
) -> ModelPlan:
    """Return the plan that a user gives: role by pattern of module names, and the sizes of attention.

    Raises InputError for an unknown role, a pattern that matches nothing, and sizes that do not fit.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    for pattern, role in plan.items():
        if role not in ROLES:
            raise InputError(f"plan: {pattern!r}: unknown role {role!r}: one of {', '.join(ROLES)}")
        if not matching(pattern, modules):
            known = listed([name for name in modules if name], MOST_NAMED)
            raise InputError(f"plan: {pattern!r} matches no module; modules are {known}: '*' is one part of a name")
    roles = roles_by(plan, model)  # type: ignore[arg-type]
    return plan_of(model, roles, _head_sizes(heads, kv_heads, head_dim), "given")


def _head_sizes(heads: int | None, kv_heads: int | None, head_dim: int | None) -> HeadSizes | None:
    if heads is None and kv_heads is None and head_dim is None:
        return None
    if heads is None or head_dim is None:
        raise InputError(f"parallelize: heads={heads}, head_dim={head_dim}: give both for attention")
    groups = heads if kv_heads is None else kv_heads
    if groups < 1 or heads % groups:
        raise InputError(f"parallelize: heads={heads}, kv_heads={kv_heads}: kv_heads must divide heads")
    return HeadSizes(groups, heads // groups, head_dim)
