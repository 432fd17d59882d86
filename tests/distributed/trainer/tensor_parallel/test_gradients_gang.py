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


def test_how_far_a_gradient_is_from_the_mean_is_measured_before_it_is_averaged(gang):
    for rank, result in enumerate(results(gang)):
        assert result["distances"] == [[4.0 if rank == 2 else 2.0, 8.0], [0.0, 0.0]]


def test_replicas_on_unlike_devices_may_differ_by_rounding_and_by_nothing_else(gang):
    for result in results(gang):
        assert result["differing"] == {"False": {"rounded": [1], "other": [2]}, "True": {"other": [2]}}
