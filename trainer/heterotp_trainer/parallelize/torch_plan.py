"""The plan of models made of torch's own layers: torch.nn.TransformerEncoderLayer."""

from torch import nn

from heterotp_trainer.parallelize.roles import HeadSizes, ModelPlan, Role, plan_of


def torch_plan(model: nn.Module) -> ModelPlan | None:
    """Return the plan of a model with encoder layers of torch; None where it has none."""
    roles: dict[str, Role] = {}
    heads: HeadSizes | None = None
    for name, module in model.named_modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            within = f"{name}." if name else ""
            attention = module.self_attn
            heads = heads or HeadSizes(attention.num_heads, 1, attention.head_dim)
            roles |= {f"{within}self_attn": "heads.column", f"{within}self_attn.out_proj": "heads.row"}
            roles |= {f"{within}linear1": "ffn.column", f"{within}linear2": "ffn.row"}
    return plan_of(model, roles, heads, "torch.nn.TransformerEncoderLayer") if roles else None
