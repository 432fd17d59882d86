"""Pruned and migrated linears against dense formulas, over real gloo gangs, in float64."""

import pytest

# float64 sums in another order: 1e-16 times a few hundred terms; ten Adam steps divide by small roots, once each
TOLERANCE = 1e-11
STEPS_TOLERANCE = 1e-9
RANKS = (1, 2, 3, 4)
PRIMITIVES = ("broadcastReduce", "scatterGather")
CASES = [
    (ranks, case) for ranks in RANKS[1:] for case in ("one", "one column", "several") if ranks > 2 or case != "several"
]


def worst(gang, ranks, name, quantity=None):
    results = gang("resized_checks.py", ranks)
    assert len(results) == ranks
    return max(result[name][quantity] if quantity else max(result[name].values()) for result in results)


@pytest.mark.parametrize("quantity", ["output", "dX", "dW"])
@pytest.mark.parametrize("imputation", ["Zero", "Average", "Same"])
@pytest.mark.parametrize("parallel", ["column", "row"])
@pytest.mark.parametrize("ranks", RANKS)
def test_pruned_equals_the_dense_formula_with_imputed_columns(gang, ranks, parallel, imputation, quantity):
    for draw in range(4):
        assert worst(gang, ranks, f"pruned {parallel} {imputation} {draw}", quantity) < TOLERANCE


@pytest.mark.parametrize("parallel", ["column", "row"])
@pytest.mark.parametrize("ranks", RANKS)
def test_pruning_nothing_is_bit_equal_to_the_plain_layer(gang, ranks, parallel):
    assert worst(gang, ranks, f"bit-equal {parallel}") == 0.0


@pytest.mark.parametrize("ranks", RANKS)
def test_paired_units_leave_out_whole_hidden_units(gang, ranks):
    assert worst(gang, ranks, "paired") < TOLERANCE


@pytest.mark.parametrize("quantity", ["output", "dX", "dW"])
@pytest.mark.parametrize("primitive", PRIMITIVES)
@pytest.mark.parametrize("parallel", ["column", "row"])
@pytest.mark.parametrize(("ranks", "case"), CASES)
def test_migrated_equals_not_migrated(gang, ranks, case, parallel, primitive, quantity):
    assert worst(gang, ranks, f"migrated {parallel} {primitive} {case}", quantity) < TOLERANCE


@pytest.mark.parametrize("quantity", ["output", "dX", "dW"])
@pytest.mark.parametrize("primitive", PRIMITIVES)
@pytest.mark.parametrize("parallel", ["column", "row"])
@pytest.mark.parametrize(("ranks", "case"), CASES)
def test_one_linear_may_prune_and_migrate(gang, ranks, case, parallel, primitive, quantity):
    assert worst(gang, ranks, f"both {parallel} {primitive} {case}", quantity) < TOLERANCE


@pytest.mark.parametrize("primitive", PRIMITIVES)
@pytest.mark.parametrize(("ranks", "case"), CASES)
def test_ten_optimizer_steps_under_migration_equal_ten_without(gang, ranks, case, primitive):
    assert worst(gang, ranks, f"ten steps {primitive} {case}") < STEPS_TOLERANCE
