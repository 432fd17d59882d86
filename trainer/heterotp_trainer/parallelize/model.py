"""`parallelize`: a model that people already have becomes tensor-parallel in place."""

import os
import sys
from collections.abc import Mapping
from typing import Protocol, TypeVar

import torch
from heterotp_api.names import Env
from torch import nn

from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.architectures import TABLES
from heterotp_trainer.parallelize.check import Inputs, Plan
from heterotp_trainer.parallelize.check import check as check_copies
from heterotp_trainer.parallelize.initial import recorded
from heterotp_trainer.parallelize.patterns import user_plan
from heterotp_trainer.parallelize.refusals import refuse_dropout_in_config, refuse_unlike_values, unknown_architecture
from heterotp_trainer.parallelize.replace import Shards, cut, replicated_values
from heterotp_trainer.parallelize.roles import ModelPlan
from heterotp_trainer.parallelize.torch_plan import torch_plan
from heterotp_trainer.parallelize.transformers_plan import transformers_plan
from heterotp_trainer.tensor_parallel.context import TPContext

Model = TypeVar("Model", bound=nn.Module)


class Sharding(Protocol):
    """What of a session is needed."""

    def shard(self) -> TPContext:
        """See Session.shard."""


def parallelize(
    model: Model,
    session: Sharding,
    plan: Mapping[str, str] | None = None,
    *,
    check: bool | Inputs = False,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
) -> Model:
    """Cut a model into units in place and return it (all ranks); it calls session.shard().

    Make the model on the meta device, where it needs no memory, then call `load_pretrained` or `initialize`; a model
    with values keeps those of this rank's units. plan: role by pattern of module names, with the sizes of attention,
    for models that no plan covers: "layers.*.attn.wq": "heads.column". check: compare a small copy with the unsharded
    model first, with a random batch or the given inputs of one call. Names of parameters stay as they are. Raises
    InputError naming what cannot be cut; nothing is changed then.
    """
    if getattr(model, "_heterotp", None) is not None:
        raise InputError("parallelize: this model is parallelized already")
    found = plan_for(model, plan, heads, kv_heads, head_dim)
    tp = session.shard()
    if hasattr(model, "config"):
        refuse_dropout_in_config(model.config, tp.ranks)
    _check(model, lambda copy: plan_for(copy, plan, heads, kv_heads, head_dim), tp, check)
    refuse_unlike_values(model, tp)
    dtypes = {name: parameter.dtype for name, parameter in model.named_parameters()}
    recipes = recorded(model)
    layouts = cut(model, found, tp)
    list(replicated_values(model, tp.device.torch_device))
    if tp.dtype == torch.bfloat16:  # weights stay in fp32; replicated parts compute as the sharded ones do
        device = tp.device.torch_device.type
        model.forward = torch.autocast(device, dtype=tp.dtype)(model.forward)
    shards = Shards(tp, found, layouts, dtypes, recipes)
    model._heterotp = shards  # type: ignore[assignment]
    return model


def _check(model: nn.Module, plan: Plan, tp: TPContext, asked: bool | Inputs) -> None:
    """Compare small copies where it is asked for, here or by `heterotp check-model`, which ends the process then."""
    only = Env.CHECK_MODEL in os.environ
    if asked is False and not only:
        return
    found = check_copies(model, plan, tp, None if isinstance(asked, bool) else asked)
    if tp.rank == 0:
        print(
            f"check: {type(model).__name__}: the outputs of {found.layers} row-parallel layers equal those of the "
            f"unsharded model within {found.error:.0e} on {tp.ranks} ranks",
            flush=True,
        )
    if only:
        sys.stdout.flush()
        os._exit(0)  # nothing after this line is part of the check


def plan_for(
    model: nn.Module,
    plan: Mapping[str, str] | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
) -> ModelPlan:
    """Return the plan by which a model is cut: the given one, that of transformers, or ours; see `parallelize`."""
    if plan is not None:
        return user_plan(model, plan, heads, kv_heads, head_dim)
    if hasattr(model, "config") and hasattr(model.config, "model_type"):
        return transformers_plan(model)
    if (found := torch_plan(model)) is not None:
        return found
    raise unknown_architecture(model, TABLES)
