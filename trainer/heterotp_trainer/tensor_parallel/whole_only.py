"""What needs whole parameters, and is refused or told where a rank holds its units only.

| call                 | where                        | what it prevents                                              |
|----------------------|------------------------------|---------------------------------------------------------------|
| refuse_drawing_units | once a parameter is cut      | all ranks draw the same numbers for units that are not alike  |
| tell_of_units        | once a model is watched      | `state_dict()`, saved by the script, holds one rank's units   |
"""

import sys
from functools import wraps
from typing import Any

from torch import Tensor, nn

from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec

DRAWN = (
    "uniform_",
    "normal_",
    "trunc_normal_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "orthogonal_",
    "sparse_",
)


def refuse_drawing_units() -> None:
    """Make the functions of torch.nn.init that draw numbers raise InputError for sharded parameters."""
    for name in DRAWN:
        draw = getattr(nn.init, name)
        if not hasattr(draw, "refuses_shards"):
            setattr(nn.init, name, _refusing(name, draw))


def _refusing(name: str, draw: Any) -> Any:
    @wraps(draw)
    def checked(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
        if isinstance(tensor, Tensor) and shard_spec(tensor) is not None:
            raise InputError(
                f"nn.init.{name}: the parameter is cut: all ranks would draw the same numbers for unlike units: "
                "initialize the modules before they are cut"
            )
        return draw(tensor, *arguments, **options)

    checked.refuses_shards = True  # type: ignore[attr-defined]
    return checked


def tell_of_units(model: nn.Module) -> None:
    """Print one line where the script asks a model that is cut for its state."""

    def tell(module: nn.Module, prefix: str, keep_vars: bool) -> None:
        if keep_vars:  # as saving and loading of our own ask for it; scripts that save leave it out
            return
        hook.remove()
        print(
            "note: state_dict() of a model that is cut holds the units of this rank only: "
            "heterotp.save_pretrained and checkpoints write whole weights",
            file=sys.stderr,
            flush=True,
        )

    if any(shard_spec(parameter) is not None for parameter in model.parameters()):
        hook = model.register_state_dict_pre_hook(tell)
