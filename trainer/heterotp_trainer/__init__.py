"""HeteroTP's trainer, built as a library: `Session` is its front door, `run_rank` opens it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heterotp_trainer.entry import run_rank
    from heterotp_trainer.session import Session

__all__ = ["Session", "run_rank"]


def __getattr__(name: str) -> Any:
    # torch takes seconds to import, and the launcher must not need it
    if name == "Session":
        from heterotp_trainer.session import Session

        return Session
    if name == "run_rank":
        from heterotp_trainer.entry import run_rank

        return run_rank
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
