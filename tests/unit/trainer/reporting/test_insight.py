"""What a run keeps and shows of late ranks."""

from heterotp_api.policy import BalancingSettings
from heterotp_api.stages import OWN_STAGES
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.boundary.injection_schedule import Injecting
from heterotp_trainer.boundary.saved_time import SavedTime
from heterotp_trainer.devices.machine.reading import NO_READING, Reading
from heterotp_trainer.devices.phase_clock import PHASES
from heterotp_trainer.devices.stage_times import StageTimes
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.reporting.insight import by_stage
from heterotp_trainer.reporting.run_status import RunStatus

RANKS = 4


def report(number, data=0.1, measured=1, span=2.0, machine=NO_READING):
    own = tuple(data if stage == "data" else 0.1 for stage in OWN_STAGES)
    seconds = dict.fromkeys(PHASES, 0.0) | {"matmul": 0.5, "wait": span - 0.5}
    return Report(number, measured=measured, seconds=seconds, full=0.5, stages=StageTimes(own), machine=machine)


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


def explained(*machines, late=1, asked=1.0, before=None):
    """Return the status of a run whose rank `late` waits for data, after its causes were looked for."""
    status = RunStatus("demo", 1, ["cpu"] * RANKS, ["a"] * RANKS, saved(), BalancingSettings())
    status.inject(Injecting(tuple((asked if rank == late else 1.0, None) for rank in range(RANKS))))
    machines = machines or (NO_READING,) * RANKS
    for number in range(1, 6):
        parts = [(0.6 if rank == late else 0.1, machine) for rank, machine in enumerate(machines)]
        status.take(tuple(report(number, data, machine=machine) for data, machine in parts))
    status.insight.judge()
    status.chi()
    status.explain()
    return status


def test_the_status_document_says_why_a_rank_is_late():
    quiet, throttled = Reading(throttled=0.0), Reading(throttled=0.75, cpu_limit=0.5)
    status = explained(quiet, throttled, quiet, quiet)
    found = [(each.rank, each.kind, each.share, each.amount) for each in status.status().causes]
    assert found == [(1, "cpuLimit", 0.75, 0.5), (1, "data", 0.25, None)]
    assert status.insight.causes_of(1) == {"cpuLimit": 0.75, "data": 0.25}
    assert status.insight.causes_of(0) == {}
    assert status.report()["causes"][0] == {"rank": 1, "kind": "cpuLimit", "share": 0.75, "amount": 0.5}


def test_an_injection_is_the_first_cause():
    assert [each.kind for each in explained(asked=2.0).status().causes] == ["injection", "data"]


def test_no_rank_is_late_and_none_has_a_cause():
    throttled = Reading(throttled=0.75)
    assert explained(*(throttled,) * RANKS, late=None).status().causes == ()
    status = run()
    status.explain()  # before a window was judged
    assert status.status().causes == ()
