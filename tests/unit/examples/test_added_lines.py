"""examples/own-llama: what each way adds to the plain script, as the benchmark counts it."""

import importlib.util
import sys

import pytest
from support.places import ROOT


@pytest.fixture(scope="module")
def models():
    folder = str(ROOT / "benchmarks")
    spec = importlib.util.spec_from_file_location("models_benchmark", ROOT / "benchmarks" / "models.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)  # where it finds gang.py
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def test_no_way_adds_fewer_lines_than_ours(models):
    ours, dtensor, theirs = (models.added_lines(f"{name}.py") for name in ("heterotp_tp", "dtensor", "tp_plan"))
    assert "    heterotp.parallelize(model, session)" in ours
    assert len(ours) <= len(theirs) < len(dtensor)
    assert not any(line.strip().startswith(("#", '"""')) or not line.strip() for line in dtensor)
