"""What a run keeps and shows of late ranks."""

from heterotp_api.policy import BalancingSettings
from heterotp_api.stages import OWN_STAGES
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.boundary.saved_time import SavedTime
from heterotp_trainer.devices.phase_clock import PHASES
from heterotp_trainer.devices.stage_times import StageTimes
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.reporting.insight import by_stage
from heterotp_trainer.reporting.run_status import RunStatus

RANKS = 4


def report(number, data=0.1, measured=1, span=2.0):
    own = tuple(data if stage == "data" else 0.1 for stage in OWN_STAGES)
    seconds = dict.fromkeys(PHASES, 0.0) | {"matmul": 0.5, "wait": span - 0.5}
    return Report(number, measured=measured, seconds=seconds, full=0.5, stages=StageTimes(own))


def run(iterations=5, late=1, **fields):
    status = RunStatus("demo", 1, ["cpu"] * RANKS, ["a"] * RANKS, saved(), BalancingSettings())
    for number in range(1, iterations + 1):
        status.take(tuple(report(number, 0.6 if rank == late else 0.1, **fields) for rank in range(RANKS)))
    return status


def saved():
    return SavedTime(UnitPlan.even(RANKS, 8, 16), (1.0,) * RANKS)


def test_the_status_document_names_rank_and_stage_after_a_window():
    status = run()
    assert status.status().blame == ()
    assert status.insight.judge() is not None
    document = status.status()
    (first, *_) = document.blame
    assert (first.rank, first.stage, round(first.seconds, 6), round(first.share, 6)) == (1, "data", 0.5, 1.0)
    assert round(document.lost_seconds, 6) == 0.5
    assert [round(rank.blamed_seconds, 6) for rank in document.ranks] == [0, 0.5, 0, 0]
    assert status.report()["blame"][0]["stage"] == "data"


def test_every_iteration_is_counted_once():
    status = run()
    found = status.insight.judge()
    assert round(by_stage(found, 1)["data"], 6) == 2.5
    assert status.insight.judge() is None


def test_the_history_has_the_first_to_blame_of_each_iteration():
    status = run()
    reports = tuple(report(6, 0.4 if rank == 2 else 0.1) for rank in range(RANKS))
    assert status.history_line(reports, None)["late"] is None
    status.insight.judge()
    status.take(reports)
    line = status.history_line(reports, None)
    assert line["late"]["rank"] == 2 and line["late"]["stage"] == "data"
    assert [round(rank["blamed"], 6) for rank in line["ranks"]] == [0, 0, 0.3, 0]


def test_iterations_that_are_not_measured_blame_nobody():
    status = run(measured=0)
    assert status.insight.judge() is None
    assert status.status().blame == ()
