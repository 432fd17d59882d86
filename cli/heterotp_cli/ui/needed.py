"""What the live page needs; imports nothing heavy."""

import importlib.util

from heterotp_cli.errors import Failed


def require_server() -> None:
    """Raise Failed where the library that serves the page is not installed."""
    if importlib.util.find_spec("aiohttp") is None:
        raise Failed("aiohttp is not installed: pip install 'heterotp[cli]'")
