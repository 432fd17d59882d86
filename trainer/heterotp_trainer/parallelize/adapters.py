"""Modules whose code holds a number that changes with the units of this rank: it is set before each call."""

from typing import Any

from torch import nn

from heterotp_trainer.parallelize.fused import FusedColumnLinear


def adapt_split_sizes(model: nn.Module) -> None:
    """GPT-2's attention cuts its fused product by `split_size`: give it the sizes of this rank's q, k and v."""
    for module in model.modules():
        fused = getattr(module, "c_attn", None)
        if isinstance(fused, FusedColumnLinear):
            module.register_forward_pre_hook(_set_split_size)


def _set_split_size(module: Any, arguments: Any) -> None:
    module.split_size = module.c_attn.section_sizes
