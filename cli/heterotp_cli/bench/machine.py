"""On what something was measured: part of every result that is kept."""

import datetime
import importlib.metadata
import os
import platform
from typing import Any

PACKAGES = ("heterotp", "torch", "numpy")


def measured_on() -> dict[str, Any]:
    """Return the machine, the versions and the day."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    system = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    return {"date": today, **system, **versions}
