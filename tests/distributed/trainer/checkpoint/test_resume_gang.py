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
            assert found["decisions"][0] == found["decisions"][1]
