"""What a run shows of itself."""

from dataclasses import replace

import pytest
from heterotp_api.policy import BalancingSettings
from heterotp_api.trainer_status import TrainerStatus
from heterotp_trainer.balancing.effect import Effect
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.boundary.injection_schedule import Injecting
from heterotp_trainer.boundary.saved_time import SavedTime, shares_of
from heterotp_trainer.devices.phase_clock import PHASES
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve, LinearClass
from heterotp_trainer.plans.ownership import Ownership
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.reporting.run_directory import last_words
from heterotp_trainer.reporting.run_status import RunStatus


class Shown(RunStatus):
    """A run status whose saved time is kept beside it, as a session does."""

    def take(self, reports):
        self.saved.take(reports)
        super().take(reports)

    def decided(self, plan, costs):
        self.saved.decided(plan, costs)
        super().decided(plan, costs)


def run_status(shares=(0.6, 0.4), window=3, devices=None, plan=None):
    """Return a status of ranks with these shares of 180 heads and hidden units."""
    counts = [round(180 * share) for share in shares]
    saved = SavedTime(plan or UnitPlan.from_counts(counts, counts))
    devices, groups = devices or ["cpu"] * len(shares), ["a", "b"]
    return Shown("demo", 2, devices, groups, saved, BalancingSettings(window=window))


def reports(iteration, *matmul, measured=1, wait=0.5):
    def seconds(value):
        rest = {"wait": wait, "fixed": 0.25, "data": 0.0625, "control": 0.125}
        return dict.fromkeys(PHASES, 0.0) | {"matmul": value} | rest

    return tuple(Report(iteration, measured=measured, full=value, seconds=seconds(value)) for value in matmul)


def test_medians_are_of_the_window_and_of_measured_iterations():
    shown = run_status()
    shown.take(reports(1, 9.0, 9.0, measured=0))
    for iteration, value in enumerate((100.0, 1.0, 2.0, 3.0), 2):
        shown.take(reports(iteration, value, 2 * value))
    assert [rank.matmul_seconds for rank in shown.ranks()] == [2.0, 4.0]
    assert [(rank.data_seconds, rank.control_seconds) for rank in shown.ranks()] == [(0.0625, 0.125)] * 2
    assert [*shown.step_seconds] == [100.9375, 1.9375, 2.9375, 3.9375]
    assert shown.status().iteration_seconds == 2.9375


def test_speed_is_work_by_time_against_the_fastest():
    shown = run_status(shares=(0.8, 0.2))
    shown.take(reports(1, 1.0, 1.0))
    first, second = shown.ranks()
    assert first.relative_speed == 1
    assert second.relative_speed == pytest.approx(0.25)
    assert first.compute_seconds == 1.25


def test_a_slowdown_is_relative_to_the_ranks_own_time():
    shown = run_status(shares=(0.5, 0.25, 0.25))
    slowed, alone, idle = reports(1, 6.0, 1.0, 0.0)
    shown.take((replace(slowed, unslowed=2.0), alone, idle))
    assert [rank.measured_slowdown for rank in shown.ranks()] == [3.0, 1.0, None]


def test_slowness_is_computed_from_full_matmul_times():
    shown = run_status(shares=(0.25,) * 4)
    shown.take(reports(1, 1.0, 1.0, 1.0, 4.0))
    assert [rank.slowdown for rank in shown.ranks()] == [1, 1, 1, 4]


def test_the_status_has_the_reason_why_a_device_cannot_follow_an_injection():
    shown = run_status()
    shown.injecting = Injecting(((2.0, "spin"), (1.0, "spin")))
    assert [rank.injection_problem.partition(":")[0] for rank in shown.ranks()] == ["mode spin", ""]
    assert [rank.injected_slowdown for rank in shown.ranks()] == [2.0, 1.0]
    shown.devices = ["cuda:P100", "cpu"]
    assert [rank.injection_problem for rank in shown.ranks()] == ["", ""]


def test_the_time_without_reduction_is_shown_while_a_plan_reduces_work(monkeypatch):
    monkeypatch.setattr("heterotp_trainer.reporting.run_status.effects", lambda plan, costs: ())
    monkeypatch.setattr("heterotp_trainer.boundary.saved_time.pruned_share", lambda costs, reductions: 0.125)
    shown = run_status()
    shown.decided(WorkPlan(decision_id=7, reductions=((1, ()),), base_wait=0.5), None)
    assert shown.untouched_seconds() is None
    first, second = reports(2, 1.0, 1.0)
    shown.take((replace(first, decision_id=7), replace(second, full=4.0, decision_id=7)))
    assert shown.untouched_seconds() == shown.status().untouched_iteration_seconds == 4.9375
    assert shown.status().saved_seconds == 3.0
    shown.decided(WorkPlan(decision_id=8), None)
    assert shown.untouched_seconds() is None


def test_medians_are_of_the_window_of_the_policy_in_force():
    shown = run_status(window=5)
    for iteration, value in enumerate((9.0, 9.0, 9.0, 1.0, 1.0), 1):
        shown.take(reports(iteration, value, value))
    assert shown.ranks()[0].matmul_seconds == 9.0
    shown.follow(BalancingSettings(window=2))
    assert shown.ranks()[0].matmul_seconds == 1.0
    assert shown.status().iteration_seconds == 1.9375
    shown.follow(BalancingSettings(window=4))
    for iteration, value in enumerate((5.0, 7.0), 6):
        shown.take(reports(iteration, value, value))
    assert shown.ranks()[0].matmul_seconds == 3.0  # of 1, 1, 5 and 7


def test_a_slow_down_is_measured_over_the_iterations_since_its_request():
    shown = run_status(window=5)
    for iteration in range(1, 6):
        shown.take(reports(iteration, 1.0, 1.0))
    shown.inject(Injecting(((4.0, None), (1.0, None))))
    measured = []
    for iteration, (matmul, unslowed) in enumerate([(1.0, 0.0), (4.0, 1.0), (3.0, 1.0), (4.0, 1.0)], 6):
        first, second = reports(iteration, matmul, 1.0)  # the first report is of the iteration before
        shown.take((replace(first, unslowed=unslowed), second))
        shown.inject(Injecting(((4.0, None), (1.0, None)), iteration=iteration + 1))  # the same, one iteration older
        measured.append(shown.ranks()[0].measured_slowdown)
    assert measured == [1.0, 4.0, 3.5, 4.0]


def test_a_rank_without_work_has_no_speed():
    shown = run_status(shares=(1.0, 0.0))
    shown.take(reports(1, 1.0, 0.0))
    assert shown.ranks()[1].relative_speed is None


def test_before_anything_is_measured_shares_are_shown():
    shown = [(pytest.approx(rank.share), rank.matmul_seconds) for rank in run_status().ranks()]
    assert shown == [(0.6, None), (0.4, None)]


def test_the_report_has_its_stable_keys():
    shown = run_status()
    for iteration in range(1, 5):
        shown.take(reports(iteration, float(iteration), 1.0))
    shown.update(state="succeeded", iteration=4)
    report = shown.report()
    assert list(report) == [
        "job",
        "state",
        "attempt",
        "startedAt",
        "endedAt",
        "iterations",
        "epochs",
        "trainLoss",
        "testLoss",
        "testAccuracy",
        "testPerplexity",
        "sample",
        "iterationSeconds",
        "limitIterationSeconds",
        "predictedIterationSeconds",
        "strategy",
        "decisionId",
        "reason",
        "emulated",
        "savedSeconds",
        "deletedShare",
        "lostSeconds",
        "blame",
        "causes",
        "skippedUpdates",
        "gang",
        "ranks",
        "decisions",
        "moves",
        "injections",
        "shares",
        "leftOut",
    ]
    assert list(report["iterationSeconds"]) == ["min", "median", "p95", "max"]
    assert report["iterationSeconds"] == {"min": 1.9375, "median": 3.4375, "p95": 4.9375, "max": 4.9375}
    assert [rank["group"] for rank in report["ranks"]] == ["a", "b"]
    keys = {"rank", "group", "share", "computeSeconds", "matmulSeconds", "unitSeconds", "fixedSeconds"}
    balance = {"prunedRatio", "migratedRatio", "injectedSlowdown", "measuredSlowdown", "slowdown"}
    assert set(report["ranks"][0]) == keys | {"waitSeconds", "relativeSpeed"} | balance


def test_the_history_line_holds_all_ranks():
    line = run_status().history_line(reports(7, 1.0, 2.0), loss=0.5)
    assert (line["iteration"], line["loss"], line["iterationSeconds"]) == (7, 0.5, 1.9375)
    assert [rank["compute"] for rank in line["ranks"]] == [1.25, 2.25]


def test_the_history_line_has_what_held_in_its_iteration(monkeypatch):
    before, after = (Effect(),) * 2, (Effect(received=0.5), Effect(pruned=0.25, migrated=0.5))
    monkeypatch.setattr("heterotp_trainer.reporting.run_status.effects", lambda plan, costs: next(made))
    made = iter((before, after))
    shown, costs = owning_without_costs()
    shown.decided(WorkPlan(decision_id=1, ownership=Ownership(EVEN)), costs)
    shown.inject(Injecting(((1.0, None), (4.0, None))))  # in iteration 1
    shown.take(of(1, 1.0, 4.0))
    assert shown.chi() == [1.0, 4.0]
    shown.decided(WorkPlan(decision_id=2, ownership=Ownership(SKEWED)), costs)
    shown.inject(Injecting(((1.0, None), (1.0, None))))  # in iteration 2
    keys = ("share", "chi", "pruned", "migrated", "received", "injected")

    def line(decision_id):
        return [[rank[key] for key in keys] for rank in shown.history_line(of(decision_id, 1.0, 4.0), None)["ranks"]]

    assert line(1) == [[0.5, 1.0, 0, 0, 0, 1], [0.5, 4.0, 0, 0, 0, 4]]
    shown.inject(Injecting(((1.0, None), (1.0, None))))
    assert line(2) == [[0.75, 1.0, 0, 0, 0.25, 1], [0.25, 4.0, 0.25, 0.5, 0, 1]]


def test_last_words_fit_into_a_termination_message():
    some, many = run_status(), run_status(shares=(1 / 90,) * 90)
    some.take(reports(5, 1 / 3, 2 / 3))
    words = TrainerStatus.model_validate_json(last_words(some.status()))
    assert words.started_at == some.progress.started_at
    assert [rank.matmul_seconds for rank in words.ranks] == [0.3333, 0.6667]
    long = last_words(many.status())
    assert len(long) <= 4096
    assert TrainerStatus.model_validate_json(long).ranks == ()


# -- units that moved -----------------------------------------------------------------------------------------

EVEN, SKEWED = UnitPlan.even(2, 4, 16, 21), UnitPlan.from_counts([3, 1], [12, 4], [20, 1])


def owning():
    """Return the status of two ranks with even shares, and the costs of their products: a second with an even share."""
    linears = LinearClass("fc", "row", (8, 8), (4, 4), 2, 1, "ffn", 1)
    costs = Costs((linears,), ((Curve((0.0, 8.0), (0.0, 1.0), 4),),) * 2, (1, 1))
    shown = run_status(shares_of(EVEN), plan=EVEN)
    shown.decided(WorkPlan(decision_id=1, ownership=Ownership(EVEN)), costs)
    return shown, costs


def owning_without_costs():
    return run_status(shares_of(EVEN), plan=EVEN), Costs((), ((),) * 2, (1, 1))


def of(decision_id, *values, pace_ratio=0.0):
    return tuple(replace(each, decision_id=decision_id, pace_ratio=pace_ratio) for each in reports(1, *values))


def test_shares_are_shown_with_the_first_times_under_them():
    shown, costs = owning()
    shown.take(of(1, 1.0, 4.0))
    shown.moved(0.5)
    shown.decided(WorkPlan(decision_id=3, ownership=Ownership(SKEWED)), costs.owned_by(SKEWED))
    shown.take(of(1, 1.0, 4.0))  # a late report
    assert [rank.hidden_units for rank in shown.ranks()] == [8, 8]
    shown.take(of(3, 1.5, 2.0))
    assert [(rank.heads, rank.hidden_units) for rank in shown.ranks()] == [(3, 12), (1, 4)]
    assert [rank.vocabulary_rows for rank in shown.ranks()] == [20, 1]
    assert [rank.share for rank in shown.ranks()] == [0.75, 0.25]
    assert shown.status().plan_hash == SKEWED.hash
    assert (shown.status().moves, shown.status().moved_seconds) == (1, 0.5)


def test_a_rank_whose_units_have_moved_away_is_as_slow_as_it_would_be_with_them():
    shown, costs = owning()
    shown.decided(WorkPlan(decision_id=3, ownership=Ownership(SKEWED)), costs.owned_by(SKEWED))
    shown.take(of(3, 1.5, 2.0))  # a quarter of the units takes rank 1 two seconds: four with an even share
    assert [rank.slowdown for rank in shown.ranks()] == [1.0, 4.0]
    # 4 + 0.25 fixed + 0.1875 data and control, where 2.0 + 0.5 wait + ... were needed
    assert shown.untouched_seconds() == pytest.approx(4.4375)
    assert shown.saved.seconds == pytest.approx(4.4375 - shown.step_seconds[-1])


def test_the_speed_of_a_rank_without_units_is_that_of_its_probe():
    shown, costs = owning()
    evicted = UnitPlan.from_counts([4, 0], [16, 0])
    shown.decided(WorkPlan(decision_id=3, ownership=Ownership(evicted)), costs.owned_by(evicted))
    busy, idle = of(3, 2.0, 0.0)
    shown.take((busy, replace(idle, pace_ratio=3.0)))
    assert [rank.slowdown for rank in shown.ranks()] == [1.0, 3.0]
    shown.take((busy, idle))
