"""The limits that benchmarks are held against: the table of docs/algorithms.md, RESHARD."""

import pytest
from heterotp_trainer.balancing.limit import RankCost, fluid_limit, speeds, whole_heads_penalty


@pytest.mark.parametrize(
    ("chis", "limit"),
    [
        ([2] + [1] * 7, 1.067),
        ([4] + [1] * 7, 1.103),
        ([8] + [1] * 7, 1.123),
        ([2, 1, 1, 1], 1.143),
        ([8, 1, 1, 1], 1.280),
        ([8, 6, 4, 2, 1, 1, 1, 1], 1.587),
    ],
    ids=str,
)
def test_the_fluid_limit_of_even_shares(chis, limit):
    ranks = len(chis)
    costs = [RankCost(1 / ranks, matmul=float(chi), unit=0.0, fixed=0.0, wait=0.0) for chi in chis]
    assert fluid_limit(costs) == pytest.approx(limit, abs=1e-3)


def test_fixed_work_and_the_shortest_transfer_are_added():
    costs = [RankCost(0.5, 1.0, 1.0, 0.5, 0.25), RankCost(0.5, 1.0, 1.0, 0.5, 0.75)]
    assert fluid_limit(costs) == pytest.approx(2.0 + 0.5 + 0.25)


def test_a_rank_without_work_does_not_count():
    assert fluid_limit([RankCost(1.0, 2.0, 0.0, 0.0, 0.0), RankCost(0.0, 0.0, 0.0, 0.0, 5.0)]) == 2.0
    assert speeds([RankCost(0.0, 0.0, 0.0, 0.0, 0.0)]) == [None]
    assert fluid_limit([]) is None


def test_units_of_heads_have_the_cost_of_whole_heads():
    assert whole_heads_penalty([1.0] * 8, 32) == 1.0
    # 32 heads over seven ranks of speed 1 and one of 1/8: 5 heads where 4.49 would be fair
    assert whole_heads_penalty([1.0] * 7 + [0.125], 32) == pytest.approx(5 / (32 / 7.125))
