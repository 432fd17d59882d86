"""The library: what a training script imports. torch is imported on first use, not by `import heterotp`.

SECTIONS lists all public names, each with the module that defines it; docs/reference/library.md describes them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heterotp_trainer.boundary.exchange import MismatchError as MismatchError
    from heterotp_trainer.boundary.finite_guard import NonFiniteError as NonFiniteError
    from heterotp_trainer.checkpoint.errors import CheckpointError as CheckpointError
    from heterotp_trainer.devices.phase_clock import phase as phase
    from heterotp_trainer.errors import InputError as InputError
    from heterotp_trainer.parallelize.model import parallelize as parallelize
    from heterotp_trainer.parallelize.pretrained import initialize as initialize
    from heterotp_trainer.parallelize.pretrained import load_pretrained as load_pretrained
    from heterotp_trainer.parallelize.pretrained import save_pretrained as save_pretrained
    from heterotp_trainer.run_rank import run_rank as run_rank
    from heterotp_trainer.session import Directive as Directive
    from heterotp_trainer.session import Session as Session
    from heterotp_trainer.tensor_parallel.attention import ParallelAttention as ParallelAttention
    from heterotp_trainer.tensor_parallel.context import TPContext as TPContext
    from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear as ColumnParallelLinear
    from heterotp_trainer.tensor_parallel.linear import RowParallelLinear as RowParallelLinear
    from heterotp_trainer.tensor_parallel.mlp import ParallelMLP as ParallelMLP
    from heterotp_trainer.tensor_parallel.sharded_logits import cross_entropy as cross_entropy
    from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec as ShardSpec
    from heterotp_trainer.tensor_parallel.unit_spec import ffn as ffn
    from heterotp_trainer.tensor_parallel.unit_spec import gated_ffn as gated_ffn
    from heterotp_trainer.tensor_parallel.unit_spec import grouped_heads as grouped_heads
    from heterotp_trainer.tensor_parallel.unit_spec import heads as heads

_LAYERS, _MODELS = "heterotp_trainer.tensor_parallel", "heterotp_trainer.parallelize"
SECTIONS = {
    "One rank of a job": {
        "run_rank": "heterotp_trainer.run_rank",
        "Session": "heterotp_trainer.session",
        "Directive": "heterotp_trainer.session",
        "phase": "heterotp_trainer.devices.phase_clock",
    },
    "Your own model": {
        "parallelize": f"{_MODELS}.model",
        "load_pretrained": f"{_MODELS}.pretrained",
        "initialize": f"{_MODELS}.pretrained",
        "save_pretrained": f"{_MODELS}.pretrained",
        "cross_entropy": f"{_LAYERS}.sharded_logits",
    },
    "Layers": {
        "TPContext": f"{_LAYERS}.context",
        "ColumnParallelLinear": f"{_LAYERS}.linear",
        "RowParallelLinear": f"{_LAYERS}.linear",
        "ParallelAttention": f"{_LAYERS}.attention",
        "ParallelMLP": f"{_LAYERS}.mlp",
    },
    "Units": {name: f"{_LAYERS}.unit_spec" for name in ("ffn", "gated_ffn", "heads", "grouped_heads", "ShardSpec")},
    "Errors": {
        "InputError": "heterotp_trainer.errors",
        "MismatchError": "heterotp_trainer.boundary.exchange",
        "NonFiniteError": "heterotp_trainer.boundary.finite_guard",
        "CheckpointError": "heterotp_trainer.checkpoint.errors",
    },
}
_MODULES = {name: module for section in SECTIONS.values() for name, module in section.items()}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
