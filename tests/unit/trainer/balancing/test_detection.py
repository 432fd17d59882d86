"""Detection of stragglers: how rarely noise makes one, and how soon a real one is seen and seen to recover."""

import itertools

import numpy as np
import pytest
from heterotp_api.policy import BalancingSettings
from heterotp_trainer.balancing import detection
from heterotp_trainer.balancing.detection import Drift, detect, relative_slowness, slowdowns, slower_than_others
from heterotp_trainer.balancing.history import History, Observation
from heterotp_trainer.plans.ownership import Ownership
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan
from support.balancing_world import history_of, seen
from support.resharding_world import machine, measured, one, problem_of, simulation, train

NOISE = 0.05
TRIALS = 200


def flags(seconds, window=5, flagged=(), **policy):
    """Return the stragglers after each iteration of seconds [n, e], carried over as the balancer does."""
    settings, history = BalancingSettings(window=window, **policy), History(window)
    nothing = np.zeros(seconds.shape[1])
    out = []
    for full in seconds:
        history.add(Observation.of(full, nothing, nothing, nothing))
        flagged = slower_than_others(history, settings, flagged)
        out.append(flagged)
    return out


def noisy(seed, count, ranks):
    return np.random.default_rng(seed).normal(1.0, NOISE, (count, ranks))


def slowed(ranks, *spans):
    """Return seconds without noise: spans of (iterations, chi of rank 0)."""
    return np.concatenate([np.tile([chi] + [1.0] * (ranks - 1), (count, 1)) for count, chi in spans])


# -- noise ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "window", "seeds"), [(8, 5, 4), (4, 5, 1), (64, 6, 1)], ids=["e8-default", "e4-default", "e64-window-6"]
)
def test_noise_makes_at_most_one_straggler_in_ten_thousand_iterations(ranks, window, seeds):
    came = 0
    for seed in range(seeds):
        found = [frozenset(), *map(frozenset, flags(noisy(seed, 10_000, ranks), window))]
        came += sum(len(now - before) for before, now in itertools.pairwise(found))
    assert came <= seeds


@pytest.mark.parametrize("ranks", [3, 8])
@pytest.mark.parametrize(
    ("before", "after", "windows"),
    [(1.0, 1.5, 1), (1.0, 8.0, 1), (1.0, 1.2, 3), (1.2, 1.0, 2), (1.5, 1.0, 2), (8.0, 1.0, 2)],
    ids=["chi-1.5", "chi-8", "chi-1.2", "recovery-from-1.2", "recovery-from-1.5", "recovery-from-8"],
)
def test_a_change_is_seen_in_95_of_100_trials(ranks, before, after, windows):
    window, in_time = 5, 0
    for trial in range(TRIALS):
        onset = 3 * window + trial % 11
        seconds = noisy(trial, onset + windows * window, ranks)
        seconds[:onset, 0] *= before
        seconds[onset:, 0] *= after
        found = [0 in each for each in flags(seconds, window)]
        in_time += found[onset - 1] == (before > 1) and (after > 1) in found[onset:]
    assert in_time >= 0.95 * TRIALS


# -- rules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spans", "first"),
    [
        ([(10, 1.0), (2, 8.0), (10, 1.0)], None),
        ([(10, 1.0), (10, 1.31)], 12),
        ([(10, 1.0), (5, 1.29), (10, 1.0)], None),
        ([(10, 1.0), (20, 1.11)], 17),
        ([(10, 1.0), (20, 1.09)], None),
    ],
    ids=["two-iterations-are-noise", "at-once", "one-window-is-not-enough", "two-disjoint-windows", "below-enter"],
)
def test_how_much_slower_for_how_long_makes_a_straggler(spans, first):
    found = flags(slowed(8, *spans))
    assert next((i for i, each in enumerate(found) if each), None) == first
    assert first is None or found[-1] == (0,)


@pytest.mark.parametrize(("chi", "stays"), [(1.07, True), (1.06, True), (1.04, False), (0.5, False)], ids=str)
def test_a_straggler_stays_a_straggler_down_to_the_exit_threshold(chi, stays):
    assert flags(slowed(8, (10, chi)), flagged=(0,))[-1] == ((0,) if stays else ())
    assert flags(slowed(8, (10, chi)))[-1] == ()


@pytest.mark.parametrize("ends", [0, 1, 2], ids="iterations-{}".format)
def test_recovery_is_seen_as_fast_as_slow_down(ends):
    slow = flags(slowed(8, (10, 1.0), (1 + ends, 8.0)))
    well = flags(slowed(8, (10, 8.0), (1 + ends, 1.0)))
    assert bool(slow[-1]) == (not well[-1]) == (ends == 2)


@pytest.mark.parametrize(
    ("policy", "chi", "found"),
    [({"enter": 0.5}, 1.4, ()), ({"enter": 0.5}, 1.6, (0,)), ({"enter": 0.06, "exit": 0.01}, 1.07, (0,))],
    ids=["enter-above-at-once", "above-it", "a-low-enter"],
)
def test_the_policy_sets_the_thresholds(policy, chi, found):
    assert flags(slowed(8, (10, chi)), **policy)[-1] == found


@pytest.mark.parametrize(
    ("full", "found"),
    [
        ([1, 2], (1,)),
        ([1, 1, 2], (2,)),
        ([1, 2, 2], (1, 2)),
        ([2, 1, 2, 1], (0, 2)),
        ([8, 6, 4, 2, 1, 1, 1, 1], (0, 1, 2, 3)),
        ([2, 2, 2, 2, 2, 1, 1, 1], (0, 1, 2, 3, 4)),
        ([1, 2, 2, 2], ()),
        ([1, 1, 2, 2, 2, 2, 2, 2], ()),
        ([0, 0], ()),
    ],
    ids=["e2", "e3", "e3-two", "e4-two", "four-of-8", "five-of-8", "one-fast-of-4", "two-fast-of-8", "no-work"],
)
def test_the_reference_is_the_upper_quartile_of_speed(full, found):
    assert flags(np.tile(np.array(full, dtype=float), (5, 1)))[-1] == found


@pytest.mark.parametrize(
    ("full", "chi"),
    [
        ([4, 2, 1], [4, 2, 1]),
        ([1, 2, 4, 4], [0.5, 1, 2, 2]),
        ([0, 0, 3], [1, 1, 1]),
        ([0.005, 0.0, 1, 2], [0.005, 0, 1, 2]),
    ],
    ids=["e3", "e4", "reference-without-work", "two-evicted-of-4"],
)
def test_slowness_is_against_the_reference(full, chi):
    nothing = np.zeros(len(full))
    assert slowdowns(Observation.of(full, nothing, nothing, nothing), None, ()).tolist() == chi


def test_before_a_window_is_full_nothing_changes():
    assert flags(slowed(8, (4, 8.0)), flagged=(3,)) == [(3,)] * 4


# -- windows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "newest", "before"),
    [(1, 7.0, 6.0), (2, 6.5, 4.5), (3, 6.0, 3.0), (4, 5.5, None), (8, None, None)],
    ids="window-{}".format,
)
def test_medians_of_the_newest_window_and_of_the_one_before(window, newest, before):
    history = history_of(*(seen([v, 10 * v]) for v in (9.0, 3.0, 2.0, 4.0, 5.0, 6.0, 7.0)), window=window)
    for back, value in ((0, newest), (1, before)):
        found = history.median(back)
        assert (None if found is None else found.full.tolist()) == (None if value is None else [value, 10 * value])


def test_a_median_is_of_each_phase_and_rank_by_itself():
    history = history_of(
        seen([1, 9], unit=[3, 1], fixed=5, wait=[1, 2]),
        seen([2, 8], unit=[2, 2], fixed=6, wait=[9, 1]),
        seen([3, 1], unit=[1, 3], fixed=4, wait=[5, 0]),
        window=3,
    )
    found = history.median()
    assert [v.tolist() for v in (found.full, found.unit, found.fixed, found.wait)] == [[2, 8], [2, 2], [5, 5], [5, 1]]
    assert found.total.tolist() == [9, 15]


def test_another_window_keeps_the_history():
    history = history_of(*(seen([float(v), 1.0]) for v in range(8)), window=4)
    assert history.resized(2).median().full[0] == 6.5
    assert history.resized(2).median(1).full[0] == 4.5
    assert history.resized(8).median().full[0] == 3.5
    assert history.resized(9).median() is None


# -- drift from the speeds that shares were made for ----------------------------------------------------------


def drift_of(found, *windows, **ownership):
    """Return what is detected of windows of equal observations, oldest first, and the history."""
    history = history_of(*(each for each in windows for _ in range(5)), window=5)
    plan = WorkPlan(ownership=Ownership(found.unit_plan, **ownership))
    return detect(history, BalancingSettings(), plan, found.costs)


def test_a_rank_without_units_drifts_and_is_no_straggler():
    found = machine(plan=UnitPlan.from_counts([0, 5, 5, 5, 5, 4, 4, 4], [0] + [147] * 5 + [144, 145]))
    pace = [8.0] + [0.0] * 7
    detected = drift_of(found, *[measured(found, one(1.0), pace=pace)] * 2)
    assert detected.seen.full[0] == 0
    assert (detected.drift.slower, detected.stragglers) == ((0,), ())


@pytest.mark.parametrize(("moved_at", "ranks"), [(6, ()), (5, (0,)), (0, (0,))])
def test_only_a_full_window_after_a_move_counts(moved_at, ranks):
    found = machine()
    slowness = tuple(problem_of(found, one(1.0)).even_seconds.tolist())
    detected = drift_of(found, *[measured(found, one(2.0))] * 2, slowness=slowness, moved_at=moved_at)
    assert detected.drift.ranks == detected.stragglers == ranks


@pytest.mark.parametrize(("chi", "windows"), [(1.0, 1), (1.04, 1), (1.07, 2), (1 / 1.07, 2)], ids=str)
def test_the_window_before_is_compared_only_where_a_rank_differs(chi, windows, monkeypatch):
    compared = []
    monkeypatch.setattr(detection, "relative_slowness", lambda *a: compared.append(a) or relative_slowness(*a))
    found = machine()
    assert drift_of(found, *[measured(found, one(chi))] * 2).drift.ranks == ()
    assert len(compared) == windows


@pytest.mark.parametrize(("before", "uneven"), [(None, False), (1.0, False), (2.0, True)], ids=str)
def test_shares_are_uneven_when_a_rank_is_late_in_both_windows(before, uneven):
    found = machine()
    late = problem_of(found, one(2.0))
    earlier = None if before is None else measured(found, one(before))
    assert Drift(late, earlier, late.even_seconds, late.pace, (), 0.1).uneven == uneven
    even = problem_of(found, one(1.0))
    assert not Drift(even, earlier, even.even_seconds, even.pace, (), 0.1).uneven


@pytest.mark.parametrize(
    ("chis", "ratio"),
    [
        ([2.0] * 8, [1.0] * 8),
        ([0.5] * 8, [1.0] * 8),
        ([1.0] * 4 + [2.0] * 4, [1.0] * 4 + [2.0] * 4),
        ([1.5] * 7 + [3.0], [1.0] * 7 + [2.0]),
        ([0.5] * 4 + [1.0] * 4, [0.5] * 4 + [1.0] * 4),
    ],
    ids=["all-slower", "all-faster", "half-slower", "all-slower-one-more", "half-faster"],
)
def test_slowness_that_all_ranks_have_in_common_is_no_drift(chis, ratio):
    found = machine()
    expected = problem_of(found, one(1.0)).even_seconds
    assert relative_slowness(problem_of(found, chis), expected).tolist() == pytest.approx(ratio)


# -- ranks of unequal speed that own what fits them -------------------------------------------------------

SPEEDS = (1.0, 1.0, 0.25)
SLOWNESS = (1.0, 1.0, 4.0)
UNEVEN = UnitPlan.from_counts([16, 16, 0], [455, 455, 114])  # whole heads leave none to the slow rank


def uneven_machine():
    return machine(3, plan=UNEVEN, slowness=SLOWNESS)


@pytest.mark.parametrize("strategy", ["None", "ZERO", "MIG", "SEMI", "RESHARD", "AUTO"])
def test_a_healthy_job_of_unequal_ranks_has_no_straggler(strategy):
    run = simulation(uneven_machine(), strategy=strategy)
    ran = train(run, SLOWNESS, 200)
    assert run.plan.stragglers == ()
    assert max(iteration.deleted for iteration in ran) == 0.0
    assert run.plan.decision_id <= 2


@pytest.mark.parametrize("strategy", ["ZERO", "SEMI"])
def test_a_rank_that_becomes_slower_than_its_share_allows_for_is_one(strategy):
    run = simulation(uneven_machine(), strategy=strategy)
    train(run, SLOWNESS, 20)
    ran = train(run, (4.0, 1.0, 4.0), 20)
    assert run.plan.stragglers == (0,)
    assert "rank 0 is 4.0x slower" in run.plan.reason
    assert ran[-1].seconds < ran[0].seconds


@pytest.mark.parametrize("calibrated", [True, False], ids=["by-curves", "by-shares"])
@pytest.mark.parametrize(
    ("chis", "chi"),
    [(SLOWNESS, (1.0, 1.0, 1.0)), ((4.0, 1.0, 4.0), (4.0, 1.0, 1.0)), ((1.0, 1.0, 8.0), (1.0, 1.0, 2.0))],
    ids=["healthy", "fast-slowed", "slow-slowed"],
)
def test_chi_is_what_a_rank_takes_over_what_its_work_should_take(chis, chi, calibrated):
    found = uneven_machine()
    measured_now = measured(found, chis)
    got = slowdowns(measured_now, UNEVEN, SLOWNESS, found.costs if calibrated else None)
    assert got == pytest.approx(chi, rel=0.02)


def test_a_declared_slow_rank_with_an_even_share_is_slow():
    found = machine(4)
    assert slowdowns(measured(found, one(4.0, 4)), found.unit_plan, (), found.costs) == pytest.approx(one(4.0, 4))
