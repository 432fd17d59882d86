"""Shares: the fastest whole units, their bounds, and as few moves as possible. Against brute force."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from heterotp_api.strategy_blocks import Reshard
from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.prediction import move_seconds
from heterotp_trainer.balancing.reshard_problem import ReshardProblem, Times, family_times
from heterotp_trainer.balancing.unit_planner import (
    NEAR,
    PRECISION,
    Impossible,
    balanced,
    bounds_of,
    keeps_limits,
    target,
)
from heterotp_trainer.plans.unit_plan import FAMILIES, UnitPlan
from hypothesis import given, settings
from hypothesis import strategies as st
from support.resharding_world import HEADS, UNITS, machine, one

SLACK = (1 + NEAR) * (1 + PRECISION)


def straight(*seconds_per_unit, most=1000.0):
    """Return times in proportion to units."""
    slopes = np.array(seconds_per_unit)
    return Times(np.tile([0.0, most], (len(slopes), 1)), slopes[:, None] * np.array([0.0, most]))


EQUAL = {"heads": (4,) * 8, "ffn": (128,) * 8, "vocab": (0,) * 8}


def seen_by(found, chis, unit=0.0, attention=0.0, vocabulary=0.0):
    """Return what one iteration on a machine looks like."""
    ranks = len(chis)
    full = found.costs.tables.full * np.array(chis)
    nothing = [found.fixed] * ranks
    probed = np.where(found.costs.idle, chis, 0.0).tolist()
    parts = {"attention": [attention] * ranks, "vocabulary": [vocabulary] * ranks}
    return Observation.of(full.tolist(), [unit] * ranks, nothing, [0.0] * ranks, **parts, pace=probed)


def reshard_problem(chis, found=None, **seen):
    found = found or machine(len(chis))
    return ReshardProblem(found.costs, seen_by(found, chis, **seen), found.unit_plan)


def every_split(total, ranks, least, most):
    for counts in itertools.product(range(total + 1), repeat=ranks - 1):
        rest = total - sum(counts)
        every = (*counts, rest)
        if rest >= 0 and all(low <= n <= high for low, n, high in zip(least, every, most, strict=True)):
            yield every


@st.composite
def problems(draw):
    ranks, total = draw(st.integers(2, 4)), draw(st.integers(1, 9))
    steps = st.lists(st.sampled_from([0.1, 0.5, 1.0, 3.0]), min_size=2, max_size=2)
    units = np.tile([0.0, 3.0, 9.0], (ranks, 1))
    seconds = np.array([[0.0, a, a + b] for a, b in (draw(steps) for _ in range(ranks))])
    least = draw(st.integers(0, total // ranks))
    most = draw(st.lists(st.integers(0, total), min_size=ranks, max_size=ranks))
    current = next(iter(draw(st.permutations(list(every_split(total, ranks, [0] * ranks, [total] * ranks))[:40]))))
    return Times(units, seconds), total, least, most, current


def posed(problem):
    """Return a problem with its bounds, and all splits that keep them."""
    times, total, least, most, current = problem
    bounds = bounds_of(total, 1, len(most), least, most=most)
    return times, total, bounds, current, list(every_split(total, len(most), bounds.least, bounds.most))


@given(problems())
@settings(deadline=None)
def test_shares_are_the_fastest_whole_ones_that_keep_the_bounds(problem):
    times, total, bounds, current, allowed = posed(problem)
    if not allowed:
        with pytest.raises(Impossible):
            balanced(times, bounds, total, current)
        return
    found = balanced(times, bounds, total, current)
    assert sum(found) == total
    assert all(low <= n <= high for low, n, high in zip(bounds.least, found, bounds.most, strict=True))
    best = min(float(times.at(counts).max()) for counts in allowed)
    assert float(times.at(found).max()) <= best * SLACK + 1e-9


@given(problems())
@settings(deadline=None)
def test_no_other_shares_that_are_as_fast_move_less(problem):
    times, total, bounds, current, allowed = posed(problem)
    if not allowed:
        return
    found = balanced(times, bounds, total, current)

    def moved(counts):
        return sum(max(0, a - b) for a, b in zip(current, counts, strict=True))

    best = min(float(times.at(counts).max()) for counts in allowed)
    near = [counts for counts in allowed if float(times.at(counts).max()) <= best * (1 + NEAR)]
    assert moved(found) <= min(map(moved, near))


SKEWED = UnitPlan.from_speeds([0.02] + [1.0] * 7, HEADS, UNITS)  # rank 0 owns a block and no head


def test_the_pace_comes_from_own_work_or_from_a_probe():
    found = machine(plan=SKEWED)
    assert found.costs.idle.tolist() == [True] + [False] * 7
    chis = np.array([3.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0])
    case = ReshardProblem(found.costs, seen_by(found, chis), SKEWED)
    assert case.pace == pytest.approx(chis)
    # forwards that are done again are counted as calls, so that all work seems done in 2/3 of the time
    counted_twice = replace(case.seen, full=case.seen.full * 2 / 3)
    assert ReshardProblem(found.costs, counted_twice, SKEWED).pace == pytest.approx(chis * 2 / 3)
    assert ReshardProblem(found.costs, counted_twice, SKEWED).even_seconds[0] == pytest.approx(
        3 * case.even_seconds[1] * 2 / 3
    )
    without_reports = replace(case.seen, pace=np.zeros(8), full=case.seen.full * (1 - found.costs.idle))
    assert ReshardProblem(found.costs, without_reports, SKEWED).pace[0] == 1.0


def test_fixed_times_of_a_rank_do_not_change_its_share():
    """Rank 0 is as fast as all others; what it spends beside products is nearly the same for a block as for a share."""
    found = machine(plan=SKEWED)
    seen = replace(seen_by(found, [1.0] * 8), unit=np.array([0.03] + [0.04] * 7))
    case = ReshardProblem(found.costs, seen, SKEWED)
    assert target(case, Reshard()) == EQUAL
    # a slow rank may be slow in that, too
    slow = ReshardProblem(found.costs, replace(seen, pace=np.array([8.0] + [0.0] * 7)), SKEWED)
    units = slow.times["ffn"].at([128] * 8) - slow.pace * case.times["ffn"].at([128] * 8)
    assert units[0] == pytest.approx(-7 * 0.04 + 8 * 0.04 - 0.04, abs=0.02)


def test_units_with_zero_time_give_no_shares():
    """By its curve a rank does all that it may own in the same time: no time is long enough for more."""
    times = Times(np.array([[0.0, 1.0, 4.0]] * 2), np.array([[0.0, 1.0, 1.0]] * 2))
    with pytest.raises(Impossible):
        balanced(times, bounds_of(100, 1, 2, 0), 100, [50, 50])


def test_a_rank_that_takes_no_time_by_its_curve_ends_the_search():
    times = Times(np.array([[0.0, 10.0]] * 3), np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0]]))
    assert balanced(times, bounds_of(10, 1, 3, 0), 10, [5, 5, 0]) == (0, 0, 10)


def test_limits_are_kept_by_even_shares_too():
    found = machine()
    unit_move = found.costs.unit_move
    whole = HEADS * unit_move.heads_bytes + UNITS * unit_move.ffn_bytes
    case = ReshardProblem(found.costs, seen_by(found, [1.0] * 8), SKEWED)
    assert target(case, Reshard(memory_limit_bytes=int(whole * 0.2))) == EQUAL
    assert keeps_limits(case, Reshard(memory_limit_bytes=int(whole * 0.2)))
    assert not keeps_limits(case, Reshard(memory_limit_bytes=int(whole * 0.13)))
    assert not keeps_limits(case, Reshard(min_units=32)) and keeps_limits(case, Reshard())


def test_equal_ranks_share_evenly_and_small_gains_move_nothing():
    bounds = bounds_of(1000, 1, 4, 1)
    gathered = balanced(straight(1.0, 1.0, 1.0, 1.0), bounds, 1000, [1000, 0, 0, 0])
    assert sum(gathered) == 1000 and max(gathered) <= 250 * SLACK
    assert balanced(straight(1.0, 1.005, 1.0, 1.0), bounds, 1000, [250] * 4) == (250,) * 4  # within NEAR


def test_shares_are_whole_blocks_and_evicted_ranks_get_none():
    bounds = bounds_of(96, 64, 3, 5, evicted=[1])
    assert bounds.grain == 32
    assert bounds.least.tolist() == [1, 0, 1]
    assert bounds.most.tolist() == [3, 0, 3]
    assert balanced(straight(1.0, 1.0, 1.0), bounds, 96, [32, 32, 32]) in [(64, 0, 32), (32, 0, 64)]


def test_a_thousand_ranks_are_planned_like_four():
    slowness = [4.0 if rank % 4 == 0 else 1.0 for rank in range(1024)]
    counts = balanced(straight(*slowness, most=1e6), bounds_of(1 << 20, 1, 1024, 1), 1 << 20, [1024] * 1024)
    assert sum(counts) == 1 << 20
    fluid = (1 << 20) / sum(1 / each for each in slowness)
    assert max(n * s for n, s in zip(counts, slowness, strict=True)) <= fluid * SLACK + 4


@pytest.mark.parametrize("chi", [2.0, 4.0, 8.0])
def test_curves_of_both_linears_add_up_by_units(chi):
    found = machine(8, curve=(0.7, 1.0))  # half of the columns take more than half of the time
    times = family_times(found.costs, np.array(one(chi)), np.full(8, 0.01), "ffn")
    even = UNITS / 8
    assert times.at([even] * 8)[0] == pytest.approx(chi * 0.4 * 2 / 3 + 0.01 * even)
    assert times.at([even / 2] * 8)[0] == pytest.approx(chi * 0.7 * 0.4 * 2 / 3 + 0.01 * even / 2)
    assert times.within(float(times.at([even] * 8)[1]))[1] == pytest.approx(even)


def test_times_do_not_depend_on_the_present_owners():
    even, other = machine(8), machine(8, plan=UnitPlan.from_speeds([0.2] + [1.0] * 7, HEADS, UNITS))
    pace, nothing = np.array(one(4.0)), np.zeros(8)
    for family in ("heads", "ffn"):
        a, b = (family_times(m.costs, pace, nothing, family).at([7] * 8).tolist() for m in (even, other))
        assert a == pytest.approx(b)


@pytest.mark.parametrize("chis", [one(2.0), one(8.0), [8.0, 6.0, 4.0, 2.0, 1, 1, 1, 1]], ids=str)
def test_each_family_is_balanced_on_its_own_near_its_limit(chis):
    case = reshard_problem(chis)
    counts = target(case, Reshard(grain=1))
    fluid = len(chis) / sum(1 / chi for chi in chis)
    ffn = float(case.times["ffn"].at(counts["ffn"]).max())
    assert ffn <= 0.4 * 2 / 3 * fluid * 1.03
    heads = [n * chi for n, chi in zip(counts["heads"], chis, strict=True)]
    assert max(heads) <= min(max(n * c for n, c in zip(split, chis, strict=True)) for split in nearby(chis)) * (
        1 + NEAR
    )
    assert sum(counts["heads"]) == HEADS


def nearby(chis):
    """Return whole-heads splits around the fractional optimum."""
    fluid = HEADS / sum(1 / chi for chi in chis)
    base = [int(fluid / chi) for chi in chis]
    for more in itertools.product((0, 1), repeat=len(chis)):
        counts = [b + m for b, m in zip(base, more, strict=True)]
        if sum(counts) == HEADS:
            yield counts


def test_a_very_slow_rank_may_lose_all_heads_but_keeps_a_block_of_hidden_units():
    counts = target(reshard_problem(one(50.0)), Reshard())
    assert counts["heads"][0] == 0
    assert counts["ffn"][0] == 4  # a block: 1024 / 8 / 32
    assert target(reshard_problem(one(50.0)), Reshard(min_units=0))["ffn"][0] in (0, 4)
    assert target(reshard_problem(one(50.0)), Reshard(min_units=30))["ffn"][0] == 32


def test_other_work_that_moves_with_units_counts():
    slow = target(reshard_problem(one(4.0), unit=0.0), Reshard())
    with_more = target(reshard_problem(one(4.0), unit=0.3, attention=0.1), Reshard())
    # softmax and the like are not slowed: a rank that is slow in products alone may keep more
    assert with_more["ffn"][0] > slow["ffn"][0]
    assert with_more["heads"][0] >= slow["heads"][0]


def test_even_shares_are_taken_where_nothing_is_really_faster():
    found = machine(8, plan=UnitPlan.from_speeds([0.98] + [1.0] * 7, HEADS, UNITS))
    counts = target(reshard_problem([1.005] + [1.0] * 7, found), Reshard())
    assert counts["ffn"] == (UNITS // 8,) * 8


def test_an_evicted_rank_owns_nothing():
    counts = target(reshard_problem([1.0] * 4), Reshard(evict=[1, 2]))
    assert [counts[f][r] for f in ("heads", "ffn") for r in (1, 2)] == [0, 0, 0, 0]
    assert sum(counts["heads"]) == HEADS and sum(counts["ffn"]) == UNITS


def test_a_memory_limit_caps_each_family():
    found = machine(4)
    unit_move = found.costs.unit_move
    whole = HEADS * unit_move.heads_bytes + UNITS * unit_move.ffn_bytes
    case = reshard_problem(one(8.0, 4), found)
    free = target(case, Reshard())
    assert max(free["ffn"]) > 0.3 * UNITS
    counts = target(case, Reshard(memory_limit_bytes=int(0.3 * whole)))
    assert max(counts["ffn"]) <= 0.3 * UNITS
    assert max(counts["heads"]) <= 0.3 * HEADS
    with pytest.raises(Impossible):
        target(case, Reshard(memory_limit_bytes=int(0.2 * whole)))


def test_a_move_costs_the_longest_queue_of_bytes():
    found = machine(4)
    before = {"heads": (8, 8, 8, 8), "ffn": (256,) * 4, "vocab": (0,) * 4}
    after = {"heads": (5, 9, 9, 9), "ffn": (256, 128, 320, 320), "vocab": (0,) * 4}
    heads, ffn = found.costs.unit_move.heads_bytes, found.costs.unit_move.ffn_bytes
    longest = max(3 * heads, 128 * ffn, heads + 64 * ffn)
    assert move_seconds(found.costs, before, after) == pytest.approx(longest * 1e-9)
    assert move_seconds(found.costs, before, before) == 0
    rows = {"vocab": (200, 0, 0, 0)}
    assert move_seconds(found.costs, before, after | rows) == pytest.approx(
        max(200 * found.costs.unit_move.vocab_bytes, longest) * 1e-9
    )


def test_an_observation_is_converted_to_other_shares():
    case = reshard_problem(one(4.0), unit=0.2, attention=0.08)
    after = UnitPlan.from_speeds([0.25] + [1.0] * 7, HEADS, UNITS)
    seen = case.seen_under(after)
    share = after.counts("ffn")[0] / (UNITS / 8)
    heads = after.counts("heads")[0] / (HEADS / 8)
    assert seen.full[0] == pytest.approx(4 * 0.4 * (share * 2 / 3 + heads / 3))
    assert seen.attention[0] == pytest.approx(0.08 * heads)
    assert seen.unit[0] == pytest.approx(0.08 * heads + 0.12 * share)
    assert seen.pace.tolist() == one(4.0)
    assert seen.fixed.tolist() == case.seen.fixed.tolist()
    without_heads = UnitPlan.from_counts([0, 8, *[4] * 6], [UNITS // 8] * 8)
    assert case.seen_under(without_heads).full[0] == pytest.approx(4 * 0.4 * 2 / 3)


# -- the vocabulary -------------------------------------------------------------------------------------------

ROWS = 50_257  # as GPT-2's: odd


def with_vocabulary(chis, plan=None, **seen):
    return reshard_problem(chis, machine(len(chis), rows=ROWS, plan=plan), **seen)


@pytest.mark.parametrize("chi", [1.0, 4.0, 60.0], ids=str)
def test_rows_of_the_vocabulary_follow_speed_in_blocks_and_the_odd_ones_stay_together(chi):
    gathered = UnitPlan.from_counts([4] * 8, [128] * 8, [ROWS - 7 * 5000] + [5000] * 7)
    counts = target(with_vocabulary(one(chi), gathered), Reshard())
    odd_ones = sorted(count % 16 for count in counts["vocab"])
    assert sum(counts["vocab"]) == ROWS
    assert counts["vocab"] == UnitPlan.even(8, 1, 8, ROWS).counts("vocab") if chi == 1 else odd_ones == [0] * 7 + [1]
    share = ROWS / (7 + 1 / chi)
    assert max(counts["vocab"]) <= share * SLACK + 16
    assert counts["vocab"][0] == pytest.approx(share / chi, abs=0.01 * share + 17)


def test_a_rank_may_own_no_row_and_an_evicted_one_owns_none():
    assert target(with_vocabulary(one(1e6)), Reshard())["vocab"][0] == 0
    evicting = target(with_vocabulary([1.0] * 4), Reshard(evict=[1, 2, 3]))
    assert evicting["vocab"] == (ROWS, 0, 0, 0)


def test_a_memory_limit_counts_rows_and_the_ones_that_fill_no_block_exceed_it_never():
    case = with_vocabulary(one(8.0, 4))
    totals, unit_move = {"heads": HEADS, "ffn": UNITS, "vocab": ROWS}, case.costs.unit_move
    whole = sum(count * unit_move.unit_bytes(family) for family, count in totals.items())
    limit = Reshard(memory_limit_bytes=int(0.3 * whole))
    assert max(target(case, Reshard())["vocab"]) > 0.31 * ROWS
    counts = target(case, limit)
    assert max(counts["vocab"]) <= 0.3 * ROWS + 1
    kept = replace(case, unit_plan=case.unit_plan.rearranged(counts))
    assert keeps_limits(kept, limit)  # or units would be asked to move for ever


def test_a_user_may_choose_the_blocks_of_rows():
    counts = target(with_vocabulary(one(4.0, 4)), Reshard(grain=100))
    assert sorted(count % 100 for count in counts["vocab"]) == [0, 0, 0, 57]


def test_other_work_of_the_vocabulary_moves_with_its_rows():
    slow, with_more = (
        target(with_vocabulary(one(4.0), unit=0.3, **more), Reshard()) for more in ({}, {"vocabulary": 0.3})
    )
    assert with_more["vocab"][0] > slow["vocab"][0]
    assert with_more["ffn"][0] < slow["ffn"][0]


def test_an_observation_under_other_shares_has_the_vocabulary_of_these_shares():
    case = with_vocabulary(one(4.0), unit=0.3, attention=0.08, vocabulary=0.1)
    after = UnitPlan.from_speeds([0.25] + [1.0] * 7, HEADS, UNITS, ROWS)
    seen = case.seen_under(after)
    heads, ffn, rows = (after.counts(family)[0] / case.unit_plan.counts(family)[0] for family in FAMILIES)
    assert seen.vocabulary[0] == pytest.approx(0.1 * rows)
    assert seen.unit[0] == pytest.approx(0.08 * heads + 0.12 * ffn + 0.1 * rows)
    assert seen.full[0] == pytest.approx(4 * 0.4 * (heads / 3 + ffn * 2 / 3 + rows / 2), rel=1e-4)
    assert [seen.unit_of(family)[0] for family in FAMILIES] == pytest.approx([0.08 * heads, 0.12 * ffn, 0.1 * rows])


def test_the_limit_adds_a_barrier_for_the_vocabulary():
    chis, products = one(4.0), 0.4 * 1.5
    case = with_vocabulary(chis)
    assert case.fluid == pytest.approx(products * 8 / 7.25, rel=1e-3)
    assert case.seconds({family: case.unit_plan.counts(family) for family in FAMILIES}) == pytest.approx(
        4 * products + 0.6, rel=1e-3
    )
    assert case.imbalance == pytest.approx(4 * 7.25 / 8 - 1, rel=1e-2)


def test_the_ffns_part_of_the_units_time_is_never_negative():
    seen = Observation.of([1.0, 1.0], [0.3, 0.3], [0.0, 0.0], [0.0, 0.0], attention=[0.2, 0.1], vocabulary=[0.2, 0.1])
    assert seen.unit_of("ffn") == pytest.approx([0.0, 0.1])
