"""examples/own-llama: what each way adds to the plain script, as the benchmark counts it, and what can be run of it."""

import ast
import importlib

import pytest
from support.benchmarks import models_benchmark
from support.places import ROOT


def test_ours_adds_one_line_more_than_tp_plan_at_most_and_nearly_half_of_dtensor_s():
    count = models_benchmark().added_lines
    ours, dtensor, theirs = (count(f"{name}.py") for name in ("heterotp_tp", "dtensor", "tp_plan"))
    assert "    heterotp.parallelize(model, session)" in ours
    assert len(ours) <= len(theirs) + 1 and 1.9 * len(ours) < len(dtensor)
    assert not any(line.strip().startswith(("#", '"""')) or not line.strip() for line in dtensor)


@pytest.mark.parametrize("name", ["plain", "heterotp_tp", "dtensor", "tp_plan"])
def test_what_a_script_imports_is_there(name):
    """tp_plan.py is read only: it needs accelerate, which no extra has. The others run in the distributed tests."""
    tree = ast.parse((ROOT / "examples" / "own-llama" / f"{name}.py").read_text())
    imported = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert imported
    for node in imported:
        module = importlib.import_module(node.module)
        assert [each.name for each in node.names if not hasattr(module, each.name)] == []
