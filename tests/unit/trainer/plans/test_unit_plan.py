"""Plans: partitions of units, fastest whole shares, hashes."""

import itertools
from dataclasses import replace

import pytest
from heterotp_trainer.plans.unit_plan import FAMILIES, UnitPlan, balanced_counts, transfers
from hypothesis import given
from hypothesis import strategies as st
from support.resharding_world import partitions

SPEEDS = st.lists(st.floats(0.01, 100), min_size=1, max_size=5)


def slowest(counts, speeds):
    return max(count / speed for count, speed in zip(counts, speeds, strict=True))


@given(speeds=SPEEDS, heads=st.integers(1, 60), ffn=st.integers(5, 500))
def test_every_unit_has_one_owner(speeds, heads, ffn):
    plan = UnitPlan.from_speeds(speeds, heads, ffn)
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
    plan = UnitPlan.from_speeds([1.0] * 7 + [0.01], heads=32, ffn=512)
    assert plan.counts("heads")[7] == 0
    assert plan.counts("ffn")[7] >= 1


def test_even_spreads_the_remainder():
    assert sorted(UnitPlan.even(3, 16, 512).counts("heads")) == [5, 5, 6]


def test_a_thousand_ranks_are_planned():
    plan = UnitPlan.from_speeds([1 + rank % 7 for rank in range(1024)], 48, 12288)
    assert plan.total("heads") == 48
    assert plan.total("ffn") == 12288


@pytest.mark.parametrize(
    "heads",
    [((((0, 2)),), ((1, 3),)), (((0, 1),), ((2, 3),)), (((1, 2), (0, 1)), ((2, 3),)), (((1, 3),), ())],
    ids=["twice", "gap", "descending", "not-from-0"],
)
def test_shares_that_are_no_partition_are_refused(heads):
    with pytest.raises(ValueError, match="heads"):
        UnitPlan(heads, (((0, 1),), ((1, 2),)))


def test_bad_speeds_are_refused():
    with pytest.raises(ValueError, match="speeds"):
        balanced_counts(4, [1.0, 0.0])
    with pytest.raises(ValueError, match="4 units"):
        balanced_counts(4, [1.0] * 5, least=1)


def test_different_unit_plans_have_different_hashes():
    plan, other = UnitPlan.from_counts([2, 0], [3, 5]), UnitPlan.from_counts([0, 2], [3, 5])
    assert plan.hash != other.hash
    assert len(plan.hash) == 16
    assert UnitPlan.from_counts([2, 0], [3, 5]).hash == plan.hash


# -- other owners ---------------------------------------------------------------------------------------------


@given(
    partitions(3),
    st.lists(st.integers(0, 12), min_size=2, max_size=2),
    st.lists(st.integers(0, 40), min_size=2, max_size=2),
)
def test_new_counts_take_only_surplus_units_from_a_rank(before, head_cuts, unit_cuts):
    wanted = {"heads": counts_between(head_cuts, 12), "ffn": counts_between(unit_cuts, 40)}
    after = before.rearranged(wanted)
    assert {family: list(after.counts(family)) for family in wanted} == wanted
    if after == UnitPlan.even(3, 12, 40):
        return
    for family, counts in wanted.items():
        moved = sum(each.units for each in transfers(before, after) if each.family == family)
        assert moved == sum(max(0, a - b) for a, b in zip(counts, before.counts(family), strict=True))


def counts_between(cuts, total):
    low, high = sorted(cuts)
    return [low, high - low, total - high]


@given(partitions(3))
def test_even_counts_return_every_unit_to_its_even_owner(before):
    even = UnitPlan.even(3, 12, 40)
    assert before.rearranged({family: even.counts(family) for family in FAMILIES}) == even


@given(partitions(3), partitions(3))
def test_transfers_turn_one_plan_into_the_other(before, after):
    for family in FAMILIES:
        owners = before.owners(family)
        for each in transfers(before, after):
            if each.family == family:
                assert (owners[each.start : each.stop] == each.source).all()
                owners[each.start : each.stop] = each.target
        assert owners.tolist() == after.owners(family).tolist()


def test_units_of_other_even_owners_leave_first_and_return_to_their_even_owner():
    skewed = UnitPlan.even(4, 4, 16).rearranged({"heads": [1, 1, 2, 0], "ffn": [6, 6, 4, 0]})
    assert skewed.ffn == (((0, 4), (12, 14)), ((4, 8), (14, 16)), ((8, 12),), ())
    assert skewed.rearranged({"heads": [1, 1, 2, 0], "ffn": [5, 6, 4, 1]}).ffn == (
        ((0, 4), (12, 13)),
        ((4, 8), (14, 16)),
        ((8, 12),),
        ((13, 14),),
    )


@pytest.mark.parametrize(("weight", "share"), [(0.0, 0.75), (0.5, 0.5), (2 / 3, 1.25 / 3), (1.0, 0.25)], ids=str)
def test_a_share_weighs_heads_and_hidden_units_by_their_work(weight, share):
    plan = replace(UnitPlan.from_counts([3, 1], [2, 6]), weights=(1 - weight, weight, 0.0))
    assert plan.share(0) == pytest.approx(share)
    assert plan == UnitPlan.from_counts([3, 1], [2, 6])
    for heads, ffn in (([2, 2], [4, 4]), ([1, 3], [2, 6])):
        assert plan.rearranged({"heads": heads, "ffn": ffn}).weights == plan.weights


@pytest.mark.parametrize(("heads", "ffn"), [(4, 0), (0, 8)], ids=["heads-only", "ffn-only"])
@pytest.mark.parametrize("weight", [0.0, 2 / 3, 1.0], ids=str)
def test_a_share_of_one_family_is_that_of_its_units(heads, ffn, weight):
    alone = {0.0: heads, 1.0: ffn}.get(weight, 1)  # the other family then has no elements
    plan = replace(UnitPlan.even(2, heads, ffn), weights=(1 - weight, weight, 0.0))
    assert plan.share(0) == (0.5 if alone else 0.0)


# -- the vocabulary -------------------------------------------------------------------------------------------

THREE = partitions(3, rows=24)


@given(speeds=SPEEDS, rows=st.integers(0, 70))
def test_every_row_of_a_vocabulary_has_one_owner(speeds, rows):
    plan = UnitPlan.from_speeds(speeds, 4, 40, rows)
    owned = [row for rank in range(plan.ranks) for row in plan.owned("vocab", rank)]
    assert sorted(owned) == list(range(rows))
    weighed = replace(plan, weights=(0.2, 0.3, 0.5))
    assert sum(weighed.share(rank) for rank in range(plan.ranks)) == pytest.approx(1)


@given(THREE, THREE)
def test_transfers_of_three_families_turn_one_plan_into_the_other(before, after):
    owners = {family: before.owners(family).copy() for family in FAMILIES}
    for each in transfers(before, after):
        assert (owners[each.family][each.start : each.stop] == each.source).all()
        owners[each.family][each.start : each.stop] = each.target
    assert all((owners[family] == after.owners(family)).all() for family in FAMILIES)


@given(THREE, st.lists(st.integers(0, 24), min_size=2, max_size=2))
def test_other_rows_leave_heads_and_hidden_units_where_they_are(before, cuts):
    wanted = counts_between(cuts, 24)
    after = before.rearranged({"vocab": wanted})
    assert list(after.counts("vocab")) == wanted
    if after == UnitPlan.even(3, 12, 40, 24):
        return
    assert all((after.owners(family) == before.owners(family)).all() for family in ("heads", "ffn"))
    moved = sum(each.units for each in transfers(before, after))
    assert moved == sum(max(0, a - b) for a, b in zip(wanted, before.counts("vocab"), strict=True))


@given(THREE, THREE)
def test_plans_are_equal_if_and_only_if_their_hashes_are(plan, other):
    assert (plan == other) == (plan.hash == other.hash)
    assert plan != UnitPlan(plan.heads, plan.ffn)


def test_a_plan_without_a_vocabulary_keeps_the_hash_that_checkpoints_of_earlier_versions_hold():
    assert UnitPlan.from_counts([2, 1], [3, 5]).hash == "a3c842a31dc8df94"
    assert UnitPlan.from_counts([2, 1], [3, 5], [0, 0]) == UnitPlan.from_counts([2, 1], [3, 5])


def test_rows_of_another_number_of_ranks_are_refused():
    with pytest.raises(ValueError, match="heads has 2 ranks, vocab has 3"):
        UnitPlan.from_counts([2, 1], [3, 5], [1, 1, 1])
