"""Norms and means of gradients over a gang whose ranks hold unlike parts."""

import math

import pytest

RANKS = 3


def results(gang):
    return gang("gradient_checks.py", RANKS)


def test_the_norm_counts_every_unit_once_and_a_replica_once(gang):
    units, shared = 0 + 1 + 2, 2
    for result in results(gang):
        assert result["norms"]["whole"] == pytest.approx(math.sqrt(units * 2.0**2 + shared * 3.0**2))


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("part", ["unit", "shared", "loss"])
def test_a_value_that_is_not_finite_on_one_rank_makes_the_norm_so_on_all(gang, part, value):
    for result in results(gang):
        assert not math.isfinite(result["norms"][f"{part} {value}"])


def test_the_mean_is_over_all_ranks_where_some_have_no_gradient(gang):
    for result in results(gang):
        assert result["means"] == [[1.0], [1.0] * 2, [2.0] * 3, None, None]


def test_without_replicated_parameters_gradients_stay(gang):
    assert [result["shard"] for result in results(gang)] == [[0.0] * 2, [1.0] * 2, [2.0] * 2]
