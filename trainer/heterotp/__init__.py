"""The library: what a training script imports. torch is imported on first use, not by `import heterotp`.

Session    one rank of a job, from rendezvous to the last checkpoint
run_rank   runs `main(session)` and ends the process with the exit code of its end
phase      context manager that books a block's time on one phase of the session's clock
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heterotp_trainer.devices.phase_clock import phase
    from heterotp_trainer.run_rank import run_rank
    from heterotp_trainer.session import Session

__all__ = ["Session", "phase", "run_rank"]

_MODULES = {
    "Session": "heterotp_trainer.session",
    "phase": "heterotp_trainer.devices.phase_clock",
    "run_rank": "heterotp_trainer.run_rank",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
