"""Plans: partitions of units, fastest whole shares, hashes."""

import itertools

import pytest
from heterotp_trainer.tensor_parallel.units import Plan, balanced_counts
from hypothesis import given
from hypothesis import strategies as st

SPEEDS = st.lists(st.floats(0.01, 100), min_size=1, max_size=5)


def slowest(counts, speeds):
    return max(count / speed for count, speed in zip(counts, speeds, strict=True))


@given(speeds=SPEEDS, heads=st.integers(1, 60), ffn=st.integers(5, 500))
def test_every_unit_has_one_owner(speeds, heads, ffn):
    plan = Plan.from_speeds(speeds, heads, ffn)
    for family, total in (("heads", heads), ("ffn", ffn)):
        owned = [unit for rank in range(plan.ranks) for unit in plan.owned(family, rank)]
        assert sorted(owned) == list(range(total))
    assert min(plan.counts("ffn")) >= 1
    assert sum(plan.share(rank) for rank in range(plan.ranks)) == pytest.approx(1)


@given(speeds=st.lists(st.floats(0.05, 20), min_size=2, max_size=3), total=st.integers(3, 12), least=st.integers(0, 1))
def test_no_other_split_is_faster(speeds, total, least):
    counts = balanced_counts(total, speeds, least)
    others = itertools.product(range(least, total + 1), repeat=len(speeds))
    best = min(slowest(other, speeds) for other in others if sum(other) == total)
    assert slowest(counts, speeds) == pytest.approx(best)


def test_a_slow_rank_may_own_no_head_but_keeps_a_hidden_unit():
    plan = Plan.from_speeds([1.0] * 7 + [0.01], heads=32, ffn=512)
    assert plan.counts("heads")[7] == 0
    assert plan.counts("ffn")[7] >= 1


def test_even_spreads_the_remainder():
    assert sorted(Plan.even(3, 16, 512).counts("heads")) == [5, 5, 6]


def test_a_thousand_ranks_are_planned():
    plan = Plan.from_speeds([1 + rank % 7 for rank in range(1024)], 48, 12288)
    assert plan.total("heads") == 48
    assert plan.total("ffn") == 12288


@pytest.mark.parametrize(
    "heads",
    [((((0, 2)),), ((1, 3),)), (((0, 1),), ((2, 3),)), (((1, 2), (0, 1)), ((2, 3),)), (((1, 3),), ())],
    ids=["twice", "gap", "descending", "not-from-0"],
)
def test_what_is_no_partition_is_refused(heads):
    with pytest.raises(ValueError, match="heads"):
        Plan(heads, (((0, 1),), ((1, 2),)))


def test_bad_speeds_are_refused():
    with pytest.raises(ValueError, match="speeds"):
        balanced_counts(4, [1.0, 0.0])
    with pytest.raises(ValueError, match="4 units"):
        balanced_counts(4, [1.0] * 5, least=1)


def test_hash_tells_plans_apart():
    plan, other = Plan.from_counts([2, 0], [3, 5]), Plan.from_counts([0, 2], [3, 5])
    assert plan.hash != other.hash
    assert len(plan.hash) == 16
    assert Plan.from_counts([2, 0], [3, 5]).hash == plan.hash
