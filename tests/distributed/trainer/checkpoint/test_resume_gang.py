"""A run that continues from a checkpoint equals one that was never broken: optimizers, strategies, states."""

import pytest
from support.ranks.resume_checks import AFTER, CASES

RANKS = 3
ROUNDED = {"AUTO"}  # its units move anew: sums are taken in another order


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_equals_an_unbroken_one(gang, case):
    for found in (result[case] for result in gang("resume_checks.py", RANKS)):
        assert found["from"] == found["saved"] > 0 and len(found["again"]) == AFTER
        assert found["columns"] == [CASES[case].reduces] * 2
        if case in ROUNDED:
            losses = ([values[0] for values in found[run]] for run in ("again", "whole"))
            assert next(losses) == pytest.approx(next(losses), rel=1e-4)
        else:
            assert found["again"] == found["whole"]


def test_another_number_of_ranks_reads_importance_and_imputed_gradients_of_units(gang):
    found = gang("resume_checks.py", RANKS)[0]["ZERO Pri, Same"]["fewer"]
    own = ("qkv", "fc1")  # column-parallel: what a rank counts of columns, and its part of dX, are its own
    wanted = {}
    for linear in ("attention.qkv", "attention.proj", "mlp.fc1", "mlp.fc2"):
        counted = "mean" if linear.endswith(own) else "equal"
        keys = {"before": "equal", "pruned_steps": counted, "delta": counted, "same_weight": "equal"}
        keys["same_input"] = "absent" if linear.endswith(own) else "equal"
        wanted |= {f"columns/{linear}/{key}": value for key, value in keys.items()}
    assert found == wanted
