"""HeteroTP's trainer, built as a library: `heterotp_trainer.Session` is its front door."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heterotp_trainer.session import Session

__all__ = ["Session"]


def __getattr__(name: str) -> Any:
    # torch takes seconds to import, and the launcher must not need it
    if name == "Session":
        from heterotp_trainer.session import Session

        return Session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
