"""What no plan covers: one line each, which names what, before anything is changed."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from heterotp_api.formatting import listed
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.context import TPContext

# fields of a transformers config with the share of dropped values inside of attention or a feed-forward network
SHARDED_DROPOUT = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob", "activation_dropout")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
# styles of transformers' tensor-parallel plans that we do not cover, by a part of their name
STYLES = {
    "moe": "a mixture of experts",
    "ep_dispatch": "a mixture of experts",
    "grouped_gemm": "a mixture of experts",
    "local_params": "parameters outside of linears in a sharded region",
    "mla": "multi-head latent attention (MLA)",
    "packed": "gate and up in one matrix",
    "split_input": "query, key and value, or gate and up, in one matrix",
}


def refuse_config(config: Any) -> None:
    """Raise InputError for what a transformers config asks for and units cannot give."""
    name = getattr(config, "model_type", type(config).__name__)
    for field in EXPERTS:
        if getattr(config, field, None):
            raise InputError(f"{name}: {field}={getattr(config, field)}: a mixture of experts cannot be cut into units")
    if getattr(config, "kv_lora_rank", None):
        raise InputError(f"{name}: kv_lora_rank={config.kv_lora_rank}: multi-head latent attention (MLA) has no groups")
    if getattr(config, "num_kv_shared_layers", None):
        shared = config.num_kv_shared_layers
        raise InputError(f"{name}: num_kv_shared_layers={shared}: keys and values that layers share cannot move")
    if getattr(config, "add_cross_attention", False):
        raise InputError(f"{name}: add_cross_attention=True: cross-attention has no plan: use a model without it")


def refuse_style(name: str, style: str) -> None:
    """Raise InputError for a style of transformers' plan that is not covered; name: the pattern of modules."""
    for part, what in STYLES.items():
        if part in style:
            raise InputError(f"plan (transformers): {name}: {style}: {what} cannot be cut into units")
    raise InputError(f"plan (transformers): {name}: {style}: this style of transformers' plan is not covered")


def refuse_module(module: nn.Module, said: str) -> None:
    """Raise InputError for a linear or an attention that computes more than shards would; said: which one it is."""
    held = ("weight", "bias", "in_proj_weight")
    computed = [name for each in held for name in (f"{each}_g", f"{each}_orig") if hasattr(module, name)]
    if is_parametrized(module) or computed:
        how = f"from {computed[0]}" if computed else "by torch.nn.utils.parametrize"
        raise InputError(f"{said}: its weight is computed {how} (a norm of weights, a mask): remove that first")
    if isinstance(module, nn.MultiheadAttention):
        added = {"add_bias_kv": module.bias_k is not None, "add_zero_attn": module.add_zero_attn}
        for option in [name for name, given in added.items() if given]:
            raise InputError(f"{said}: {option}=True: keys and values that are added have no shards: make it without")


def refuse_dropout_in_config(config: Any, ranks: int) -> None:
    """Raise InputError where values inside of a sharded region would be dropped: ranks draw unlike masks there."""
    for field in SHARDED_DROPOUT if ranks > 1 else ():
        if dropped := getattr(config, field, 0.0):
            raise InputError(
                f"config: {field}={dropped}: units change rank, and ranks draw unlike masks inside of attention and "
                f"feed-forward networks: set {field}=0.0 in the config that the model is made from"
            )


def refuse_unlike_values(model: nn.Module, tp: TPContext) -> None:
    """Raise InputError where parameters with values differ between ranks, which would be cut from unlike wholes."""
    names = [name for name, parameter in model.named_parameters() if not parameter.is_meta]
    if tp.ranks == 1 or not names:
        return
    values = [model.get_parameter(name).detach().double() for name in names]
    sums = torch.stack([torch.stack([each.sum(), each.abs().sum()]) for each in values]).cpu()
    bounds = torch.stack([sums, -sums])
    dist.all_reduce(bounds, op=dist.ReduceOp.MAX, group=tp.control_group)
    differing = [name for name, each in zip(names, (bounds[0] != -bounds[1]).any(1).tolist(), strict=True) if each]
    if differing:
        raise InputError(
            f"parallelize: {listed(differing, 3)}: ranks hold unlike values: torch.manual_seed(...) with the same "
            "number on all ranks before the model is made"
        )


def unknown_architecture(model: nn.Module, tables: Mapping[str, object]) -> InputError:
    """Return the error for a model that has no plan."""
    config = getattr(model, "config", None)
    name = getattr(config, "model_type", None) or type(model).__name__
    return InputError(
        f"parallelize: no plan covers {name}: it has no tp_plan of transformers and is none of {', '.join(tables)}: "
        'give one, e.g. plan={"layers.*.attn.wq": "heads.column", "layers.*.attn.wo": "heads.row", ...}'
    )
