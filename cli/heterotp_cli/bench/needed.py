"""What measurements need beside the command line."""

import importlib.util

from heterotp_cli.errors import Failed


def require(*modules: str) -> None:
    """Raise Failed for a module that is not installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise Failed(f"{module} is not installed: pip install 'heterotp[trainer,cli]'")
