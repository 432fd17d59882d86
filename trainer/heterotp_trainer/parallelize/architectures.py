"""Our own plans, for architectures of transformers without a plan of theirs, or with q, k and v in one matrix."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from heterotp_trainer.parallelize.adapters import adapt_split_sizes
from heterotp_trainer.parallelize.roles import Role


@dataclass(frozen=True)
class Architecture:
    """Roles by pattern of module names below the base model.

    fused: last names of linears with q, k and v in one, with the number of sections of its rows (1: head by head).
    """

    roles: Mapping[str, Role]
    fused: Mapping[str, int] = field(default_factory=dict)
    adapt: Callable[[nn.Module], None] = lambda model: None


def _roles(columns: tuple[str, ...], row: str, ffn_column: str, ffn_row: str) -> dict[str, Role]:
    return {
        **{each: "heads.column" for each in columns},
        row: "heads.row",
        ffn_column: "ffn.column",
        ffn_row: "ffn.row",
    }


BERT = Architecture(
    _roles(
        tuple(f"encoder.layer.*.attention.self.{each}" for each in ("query", "key", "value")),
        "encoder.layer.*.attention.output.dense",
        "encoder.layer.*.intermediate.dense",
        "encoder.layer.*.output.dense",
    )
)
TABLES: dict[str, Architecture] = {
    "bert": BERT,
    "roberta": BERT,
    "vit": Architecture(
        _roles(
            tuple(f"layers.*.attention.{each}_proj" for each in "qkv"),
            "layers.*.attention.o_proj",
            "layers.*.mlp.fc1",
            "layers.*.mlp.fc2",
        )
    ),
    "gpt2": Architecture(
        _roles(("h.*.attn.c_attn",), "h.*.attn.c_proj", "h.*.mlp.c_fc", "h.*.mlp.c_proj"),
        fused={"c_attn": 3},
        adapt=adapt_split_sizes,
    ),
    "gpt_neox": Architecture(
        _roles(
            ("layers.*.attention.query_key_value",),
            "layers.*.attention.dense",
            "layers.*.mlp.dense_h_to_4h",
            "layers.*.mlp.dense_4h_to_h",
        ),
        fused={"query_key_value": 1},
    ),
}
