"""What a rank's work and slowness are measured by."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from heterotp_api.policy import BalancingSettings
from heterotp_trainer.balancing.detection import slowdowns
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.boundary.injection_schedule import Injecting
from heterotp_trainer.boundary.saved_time import SavedTime
from heterotp_trainer.boundary.stall import Stall
from heterotp_trainer.devices.phase_clock import PHASES
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.reporting.loggers.thread import Loggers
from heterotp_trainer.reporting.loss_reader import LossReader
from heterotp_trainer.reporting.metrics import RankMetrics
from heterotp_trainer.reporting.null_reporter import NullReporter
from heterotp_trainer.reporting.reporter import Reporter, work_owned
from heterotp_trainer.reporting.run_status import RunStatus
from heterotp_trainer.resharding.resharder import CompletedMove
from support.resharding_world import HEADS, UNITS, machine, measured


def plan(*speeds):
    return UnitPlan.from_speeds(list(speeds), HEADS, UNITS)


@pytest.mark.parametrize("costs", [None, machine(4).costs], ids=["columns", "curves"])
@pytest.mark.parametrize(
    ("now", "first", "work"),
    [
        ((1, 1, 1, 1), (1, 1, 1, 1), 1),
        ((5, 5, 5, 1), (5, 5, 5, 1), 1),  # half as fast, half of the work: all that it should do
        ((5, 5, 5, 1), (1, 1, 1, 1), 0.25),
        ((1, 1, 1, 1), (5, 5, 5, 1), 4),
    ],
)
def test_work_is_relative_to_the_first_shares_of_the_rank(now, first, work, costs):
    assert work_owned(plan(*now), plan(*first), 3, costs) == pytest.approx(work)


def test_work_of_a_rank_without_first_units_is_relative_to_an_even_share():
    half, none = UnitPlan.even(2, HEADS, UNITS), UnitPlan((((0, HEADS),), ()), (((0, UNITS),), ()))
    assert work_owned(half, none, 1, None) == 1
    assert work_owned(none, half, 1, machine(2).costs) == 0


def test_curves_give_the_time_of_fewer_units():
    crooked = machine(4, curve=(0.5, 0.7, 0.9, 1.0)).costs  # half of the columns take seven tenths of the time
    assert work_owned(plan(1, 1, 1, 0.4), plan(1, 1, 1, 1), 3, crooked) > 0.55


def test_the_status_document_has_the_idle_seconds_of_the_heartbeats():
    idle = iter((12.5, None))
    saved = SavedTime(plan(1), (1.0,))
    shown = RunStatus("demo", 1, ["cpu"], ["a"], saved, BalancingSettings(), idle.__next__)
    assert [shown.status().idle_seconds, shown.status().idle_seconds] == [12.5, None]


class WorkOnly(Reporter):
    """A reporter of nothing but its own rank's work."""

    def __init__(self):
        self._owned, self._whole_seconds = 1.0, 0.0


def report(matmul, full_work_factor=1.0, measured=1):
    return Report(1, measured=measured, full=matmul * full_work_factor, seconds={"matmul": matmul})


def test_an_evaluation_counts_by_its_time():
    reporter = WorkOnly()
    assert reporter._work(report(0.8)) == 1
    assert reporter._work(report(0.2, full_work_factor=4)) == pytest.approx(0.25)  # pruned to a quarter
    assert reporter._work(report(0.2 + 2.4, full_work_factor=4, measured=0)) == pytest.approx(3.25)  # and an evaluation
    assert reporter._work(report(0.0, full_work_factor=1)) == 0


def test_a_reporter_shows_all_that_a_session_hands_over():
    shown = [name for name, member in vars(NullReporter).items() if callable(member) and not name.startswith("_")]
    assert [name for name in shown if name not in vars(Reporter)] == []


class OfAnEnd(Reporter):
    """A reporter of nothing but the end of its run."""

    def __init__(self):
        self._losses, self._run, self._loggers = LossReader(), None, Loggers({})
        self.run_status = RunStatus("demo", 1, ["cpu"], ["a"], SavedTime(plan(1), (1.0,)), BalancingSettings())


@pytest.mark.parametrize(("stopped", "state"), [(True, "stopping"), (False, "failed")], ids=["stop", "failure"])
def test_the_end_of_a_hung_run_has_its_stall_in_the_message_alone(stopped, state):
    reporter = OfAnEnd()
    reporter.stalled(Stall(12.0, (1,), "rank 1 is still computing", overdue=False))
    reporter.failed("no iteration for 12 s; rank 1 is still computing", stopped=stopped)
    status = reporter.run_status.status()
    assert (status.state, status.stall, status.stalled_seconds) == (state, "", None)


class OfDecisions(Reporter):
    """A reporter of nothing but decisions, in a run of 200 iterations."""

    def __init__(self, ended):
        self._environment, self._ended, self._moved = SimpleNamespace(rank=0), ended, None
        self.metrics, self.job = RankMetrics(0, "full"), SimpleNamespace(decided=lambda plan: None)
        self.noted, self._loggers = [], SimpleNamespace(add=lambda note: self.noted.append(note))
        saved = SavedTime(plan(1, 1), (1.0, 1.0))
        self.run_status = RunStatus("demo", 1, ["cpu"] * 2, ["a"] * 2, saved, BalancingSettings())
        self.run_status.update(total_iterations=200)


@pytest.mark.parametrize(("ended", "kept"), [(198, [199]), (199, [200]), (200, [])], ids=str)
def test_a_decision_for_after_the_last_iteration_is_not_kept(ended, kept, capsys):
    reporter = OfDecisions(ended)
    decided = WorkPlan(decision_id=3, explained_id=3, reason="rank 1 is 4.0x slower")
    reporter.balanced(decided, Costs((), ((), ()), (1, 1)), Injecting(((1.0, None),) * 2))
    document = reporter.run_status.report()
    assert [each["iteration"] for each in document["decisions"]] == kept
    assert (document["decisionId"], "decision 3" in capsys.readouterr().out) == ((3, True) if kept else (0, False))
    noted = [(each.iteration, each.kind, each.text) for each in reporter.noted]
    assert noted == [(iteration, "decisions", "decision 3: rank 1 is 4.0x slower") for iteration in kept]


@pytest.mark.parametrize(
    ("rows", "words"),
    [((), "heads (1, 1), hidden units (3, 5)"), ((2, 5), "heads (1, 1), hidden units (3, 5), vocabulary rows (2, 5)")],
    ids=["no vocabulary", "vocabulary"],
)
def test_a_move_is_logged_with_the_units_of_every_rank(rows, words, capsys):
    reporter, moved = OfDecisions(10), UnitPlan.from_counts([1, 1], [3, 5], rows)
    reporter._first_unit_plan, reporter._costs = moved, None
    reporter.job = SimpleNamespace(moved=lambda seconds: None)
    reporter.moved(moved, CompletedMove(0.5, 2048.0))
    assert capsys.readouterr().out.strip().endswith(f"units moved: 2 KiB in 0.5 s; {words}")
    assert [(each.kind, each.text) for each in reporter.noted] == [("moves", f"units moved: 2 KiB in 0.5 s; {words}")]


# -- chi ----------------------------------------------------------------------------------------------------

SLOWNESS = (1.0, 1.0, 4.0)
FFN = 2 / 3 / (2 / 3 + 1 / 3 * 6 / HEADS)  # the FFN's part of the machine's work where there are 6 heads only
ROUNDED = replace(UnitPlan.from_speeds([1.0, 1.0, 0.25], 6, UNITS), weights=(1 - FFN, FFN, 0.0))  # no head for rank 2


class OfOneRank(Reporter):
    """A reporter of a rank other than 0, which shows only metrics."""

    def __init__(self, rank, costs):
        self._environment, self.job = SimpleNamespace(rank=rank), None
        self.metrics = RankMetrics(rank, "full")
        saved = SavedTime(ROUNDED, SLOWNESS)
        self.run_status = RunStatus("demo", 1, ["cpu"] * 3, ["a"] * 3, saved, BalancingSettings(window=2))
        self.run_status.costs_now = costs


@pytest.mark.parametrize("calibrated", [True, False], ids=["by-curves", "by-shares"])
@pytest.mark.parametrize(
    ("chis", "expected"),
    [(SLOWNESS, [1, 1, 1]), ((1.0, 4.0, 4.0), [1, 4, 1]), ((1.0, 1.0, 10.0), [1, 1, 2.5])],
    ids=["healthy", "fast-slowed", "slow-slowed"],
)
def test_every_rank_exports_the_chi_that_the_status_shows_and_decisions_use(chis, expected, calibrated):
    found = machine(3, plan=ROUNDED, slowness=SLOWNESS)
    costs = found.costs if calibrated else None
    seen = measured(found, chis)
    seconds = [dict.fromkeys(PHASES, 0.0) | {"matmul": full} for full in seen.full]
    decided_on = slowdowns(seen, ROUNDED, SLOWNESS, costs).tolist()
    assert decided_on == pytest.approx(expected, rel=0.02)
    for rank in range(3):
        reporter = OfOneRank(rank, costs)
        for iteration in (1, 2):
            own = zip(seconds, seen.full, strict=True)
            reporter._measure(tuple(Report(iteration, measured=1, full=full, seconds=each) for each, full in own))
        shown = reporter.metrics.registry.get_sample_value("heterotp_slowdown_ratio", {"rank": str(rank)})
        assert shown == reporter.run_status.ranks()[rank].slowdown == pytest.approx(decided_on[rank])
