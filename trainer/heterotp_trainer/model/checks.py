"""What a model must not contain, because units move from rank to rank."""

from torch import nn

from heterotp_trainer.tensor_parallel.context import TPContext


def refuse_dropout(model: nn.Module, tp: TPContext) -> None:
    """Raise ValueError naming the first dropout: ranks draw different masks, and units change rank."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 and tp.ranks > 1:
            raise ValueError(
                f"model: {name}: {type(module).__name__}(p={module.p}): ranks draw unlike masks, "
                "and units change rank: leave it out, or p=0"
            )
