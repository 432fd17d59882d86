"""Programs of benchmarks/, imported by tests."""

import importlib.util
import sys

from support.places import ROOT


def models_benchmark():
    """Return benchmarks/models.py as a module."""
    folder = ROOT / "benchmarks"
    spec = importlib.util.spec_from_file_location("models_benchmark", folder / "models.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))  # where it finds gang.py
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module
