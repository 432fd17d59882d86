"""The plan of a model of transformers: its own `tp_plan`, or our table of its architecture; sizes from its config."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.architectures import TABLES
from heterotp_trainer.parallelize.patterns import matching, roles_by
from heterotp_trainer.parallelize.refusals import refuse_config, refuse_style, unknown_architecture
from heterotp_trainer.parallelize.roles import HeadSizes, ModelPlan, Role, is_linear, plan_of

ATTENTION_WORDS = ("attn", "attention")
FFN_WORDS = ("mlp", "ffn", "feed_forward", "feedforward")
PARTIAL = "replicated_with_grad_allreduce"
OUTSIDE = ("embedding_rowwise", "embedding_colwise", "colwise_gather_output")  # of embedding and logits: ours


def transformers_plan(model: nn.Module) -> ModelPlan:
    """Return the plan of a model that has a transformers config; raises InputError for what cannot be cut."""
    config: Any = model.config
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    refuse_config(config)
    table = TABLES.get(config.model_type)
    heads = head_sizes(config)
    vocabulary = _vocabulary_roles(model)
    if table is not None:
        roles = {**roles_by(table.roles, model, below=True), **vocabulary}
        return plan_of(model, roles, heads, config.model_type, fused=table.fused, adapt=table.adapt)
    styles = getattr(model, "_tp_plan", None) or {}
    if not any(style == "colwise" for style in styles.values()):
        for pattern, style in styles.items():
            if pattern.rsplit(".", 1)[-1] not in ("lm_head", "embed_tokens"):
                refuse_style(pattern, style)
        raise unknown_architecture(model, TABLES)
    return plan_of(model, {**_roles_of_styles(model, styles, heads), **vocabulary}, heads, "transformers")


def head_sizes(config: Any) -> HeadSizes | None:
    """Return the sizes of attention by a config; None where it has none."""
    heads = getattr(config, "num_attention_heads", None)
    if not heads:
        return None
    groups = getattr(config, "num_key_value_heads", None) or heads
    if heads % groups:
        raise InputError(f"config: num_key_value_heads={groups} does not divide num_attention_heads={heads}")
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    return HeadSizes(groups, heads // groups, width)


def _vocabulary_roles(model: Any) -> dict[str, Role]:
    """Return the roles of the embedding of tokens and of the logits' linear, where the model has them."""
    names = {module: name for name, module in model.named_modules()}
    roles: dict[str, Role] = {}
    try:
        embedding, logits = model.get_input_embeddings(), model.get_output_embeddings()
    except (AttributeError, NotImplementedError):
        return roles
    if isinstance(embedding, nn.Embedding):
        roles[names[embedding]] = "vocab.embedding"
        if logits is not None and is_linear(logits) and logits.weight.shape[0] == embedding.num_embeddings:
            roles[names[logits]] = "vocab.logits"
    return roles


def _roles_of_styles(model: nn.Module, styles: Mapping[str, str], heads: HeadSizes | None) -> dict[str, Role]:
    """Return the role of each module by transformers' styles; column- and row-wise ones of one parent are a family."""
    modules = dict(model.named_modules(remove_duplicate=False))
    roles: dict[str, Role] = {}
    for pattern, style in styles.items():
        if style in OUTSIDE and pattern.rsplit(".", 1)[-1] in ("lm_head", "embed_tokens", "embed_in", "wte"):
            continue
        if style not in ("colwise", "rowwise", PARTIAL):
            refuse_style(pattern, style)
        for name in matching(pattern, modules):
            if style == PARTIAL:
                roles[name] = "replicated.partial"
            else:
                family = _family(name)
                side = "column" if style == "colwise" else "row"
                roles[name] = f"{family}.{side}"  # type: ignore[assignment]
    return roles


def _family(name: str) -> str:
    """Return the family of a linear by the name of the module that holds it."""
    parent = name.lower().rsplit(".", 1)[0]
    for family, words in (("heads", ATTENTION_WORDS), ("ffn", FFN_WORDS)):
        if any(word in parent.rsplit(".", 1)[-1] for word in words):
            return family
    raise InputError(
        f"plan (transformers): {name}: the module that holds it is neither attention nor a feed-forward network by its "
        "name: give a plan"
    )
