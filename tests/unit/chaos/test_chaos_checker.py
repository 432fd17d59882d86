"""The checker of chaos runs: every invariant finds a history that breaks it, and a clean history breaks none."""

import json

import pytest
from chaos.checker import INVARIANTS, check
from chaos.history import Recorder, read
from chaos.invariants.owner import SHOWN_SECONDS
from chaos.invariants.process import MOST_BYTES
from chaos.timeline import calm_seconds, merged

UID = "u1"


class History:
    """Writes made-up records; every change has a later version, as on the API server."""

    def __init__(self, seed=5):
        self.records, self.at, self._version = [], 0.0, 0
        self.add("run", seed=seed, minutes=1, where="api")
        self.add("process", state="started", pid=1)
        self.at = 100.0

    def add(self, what, **fields):
        self.records.append({"at": self.at, "what": what, **fields})
        return self

    def later(self, seconds):
        self.at += seconds
        return self

    def object(self, plural, kind, uid, **fields):
        self._version += 1
        fields = {"name": uid, "job": "", "generation": 1, "version": self._version, **fields}
        return self.add("object", plural=plural, type=kind, uid=uid, **fields)

    def job(self, kind="MODIFIED", uid=UID, **fields):
        return self.object("heterotpjobs", kind, uid, **{"conditions": {}, "suspend": False, **fields})

    def pod(self, name, attempt, kind="ADDED", phase="Pending", uid=UID):
        return self.object("pods", kind, name, job=uid, attempt=attempt, phase=phase)

    def fault(self, number=0, kind="pod failed", jobs=(UID,), attempt=1, ends=0.0, **facts):
        self.add("fault", number=number, kind=kind, state="begun", jobs=list(jobs), attempt=attempt, **facts)
        return self.later(ends).add("fault", number=number, kind=kind, state="ended")

    def phase(self, phase):
        return self.add("phase", phase=phase)


def found(history):
    """Return the names of the invariants that are broken."""
    return {each.invariant for each in check(history.records)}


def clean():
    """A job that loses a rank, goes on in a second attempt, ends and is deleted."""
    history = History().job("ADDED").job(attempt=1, phase="Starting").pod("p-1", 1).pod("p-1", 1, "MODIFIED", "Running")
    history.job(attempt=1, phase="Running", conditions={"Running": "RanksTraining"}).later(5)
    history.fault(restarts=True, fails=True, shows="restarted", detail="p-1")
    history.pod("p-1", 1, "MODIFIED", "Failed").later(1)
    history.job(attempt=2, phase="Restarting", conditions={"Restarting": "Error"})
    history.pod("p-1", 1, "DELETED", "Failed").pod("p-2", 2).pod("p-2", 2, "MODIFIED", "Running").later(5)
    history.add("sample", pid=1, bytes=60 << 20).add("metrics", pid=1, healthy=True, values={"task_restarts": {}})
    history.add("loss", job="undisturbed", attempt=1, iteration=3, loss=2.0)
    history.add("loss", job="a", attempt=2, iteration=3, loss=2.0000001).add("checkpoint", job="a", step=20)
    history.pod("p-2", 2, "MODIFIED", "Succeeded").job(attempt=2, phase="Succeeded").phase("clearing")
    history.job("DELETED", attempt=2, phase="Succeeded").later(5).pod("p-2", 2, "DELETED", "Succeeded")
    return history.phase("end")


def test_a_clean_history_violates_nothing():
    assert check(clean().records) == []


def running(attempt=1):
    history = History().job("ADDED").job(attempt=attempt, phase="Running").pod("p-1", attempt)
    return history.pod("p-1", attempt, "MODIFIED", "Running").later(5)


def two_gangs():
    return running().pod("p-2", 2)


def an_attempt_skipped():
    return running().fault(restarts=True).job(attempt=3)


def an_attempt_taken_back():
    return running(2).job(attempt=1)


def a_pod_of_an_earlier_attempt():
    return running(2).pod("p-2", 2, "DELETED").pod("p-1", 1)


def running_after_its_end():
    return running().job(attempt=1, phase="Succeeded").job(attempt=1, phase="Running")


def a_pod_after_its_end():
    return running().job(attempt=1, phase="Succeeded").pod("p-9", 1)


def a_service_left():
    history = running().object("services", "ADDED", "s", job=UID).pod("p-1", 1, "DELETED").job("DELETED", attempt=1)
    return history.later(10).phase("end")


def a_pod_long_after_the_deletion():
    return running().job("DELETED", attempt=1).later(500).pod("p-1", 1, "DELETED").phase("end")


def a_restart_without_a_fault():
    return running().fault(kind="operator killed", jobs=(), ends_operator=True).job(attempt=2)


def a_restart_by_another_jobs_fault():
    return running().fault(jobs=("other",), restarts=True).job(attempt=2)


def a_failure_without_a_fault():
    return running().job(attempt=1, phase="Failed")


def a_fault_that_never_shows():
    return running().fault(restarts=True, shows="restarted").later(500).phase("clearing")


def a_fault_that_shows_late():
    history = running().fault(restarts=True, shows="restarted").later(SHOWN_SECONDS + 20)
    return history.job(attempt=2, phase="Restarting", conditions={"Restarting": "Error"})


def a_suspension_that_never_shows():
    return running().fault(kind="suspended", shows="suspended", ends=100).later(5).phase("clearing")


def a_child_that_stays_away():
    return running().fault(kind="child deleted", shows="child mended", detail="services/s").later(100).phase("clearing")


def a_watch_that_stays_closed():
    history = running().add("metrics", pid=1, values={"watch_reconnects": {"pods": 1.0}})
    history.fault(kind="watch cut", jobs=(), shows="watch opened again", detail="pods").later(100)
    return history.add("metrics", pid=1, values={"watch_reconnects": {"pods": 1.0}})


def a_hostile_rank_that_nobody_counts():
    history = running().add("metrics", pid=1, values={"polls": {"success": 4.0}})
    history.fault(kind="hostile rank 0", shows="rank 0 unusable", ends=90).later(10)
    return history.add("metrics", pid=1, values={"polls": {"success": 40.0}})


def a_frozen_rank_that_nobody_shows():
    history = running().add("metrics", pid="o-1", values={"polls": {"success": 4.0, "NoAnswer": 1.0}})
    history.add("metrics", pid="o-2", values={"polls": {}})  # the operator that stands by
    history.fault(kind="rank frozen", shows="job halted", ends=90).later(10)
    for pid, polls in (("o-2", {}), ("o-1", {"success": 90.0, "NoAnswer": 1.0})):
        history.add("metrics", pid=pid, values={"polls": polls})
    return history.phase("clearing")


def a_full_volume_that_nobody_shows():
    history = running().fault(kind="volume full", shows="storage reported", ends=50).job(attempt=1, phase="Running")
    return history.add("saved", job=UID, seconds=0.2).later(70).phase("clearing")


def a_hostile_job_that_nobody_counts():
    history = running().pod("p-h", 1, uid="u2").add("metrics", pid="o-1", values={"polls": {"success": 4.0}})
    history.pod("p-h", 1, "MODIFIED", "Running", uid="u2")
    history.fault(kind="hostile job", jobs=("u2",), shows="stranger counted", ends=80)
    return history.add("metrics", pid="o-1", values={"polls": {"success": 90.0}})


def a_job_that_waits_for_ever():
    return running().phase("settling").later(100).phase("clearing")


def a_policy_of_an_earlier_edit():
    return History().object("balancingpolicies", "ADDED", "p", generation=2, observedGeneration=1).phase("clearing")


def much_memory():
    return running().add("sample", pid=1, bytes=MOST_BYTES + 1)


def an_operator_that_a_job_ends():
    history = running().fault(kind="hostile rank 0", ends=10).add("process", state="ended", pid=1, code=1)
    return history.add("process", state="started", pid=2)


def a_task_that_ended():
    return running().add("metrics", pid=1, values={"task_restarts": {"poller": 1.0}})


def a_sick_operator():
    history = running()
    for _ in range(20):
        history.add("metrics", pid=1, values={}, healthy=False).later(3)
    return history


def a_checkpoint_that_goes_back():
    return running().add("checkpoint", job="a", step=40).add("checkpoint", job="a", step=20)


def published(*steps, job="a", broken=()):
    return running().add("published", job=job, steps=list(steps), broken=list(broken))


def a_directory_that_goes_back():
    return published([20, 1], [40, 1]).add("published", job="a", steps=[[20, 1]], broken=[])


def a_directory_that_is_empty_again():
    return published([20, 1]).add("published", job="a", steps=[], broken=[])


def a_checkpoint_that_is_torn():
    return published([20, 1], broken=["/mnt/step-40: ValueError: its digest does not match"])


def an_attempt_that_begins_before_the_newest():
    return published([20, 1], [40, 1]).add("checkpoint", job="a", step=20, attempt=2)


def another_loss():
    history = running().add("loss", job="undisturbed", attempt=1, iteration=3, loss=2.0)
    return history.add("loss", job="a", attempt=1, iteration=3, loss=2.01)


def a_loss_that_is_no_number():
    history = running().add("loss", job="undisturbed", attempt=1, iteration=3, loss=2.0)
    return history.add("loss", job="a", attempt=1, iteration=3, loss=float("nan"))


BROKEN = {
    "at most one live gang per job": [two_gangs],
    "attempts rise by one": [an_attempt_skipped, an_attempt_taken_back, a_pod_of_an_earlier_attempt],
    "no finished job runs again": [running_after_its_end, a_pod_after_its_end],
    "nothing is left after deletion": [a_service_left, a_pod_long_after_the_deletion],
    "no restart without a cause": [a_restart_without_a_fault, a_restart_by_another_jobs_fault],
    "no failure without a cause": [a_failure_without_a_fault],
    "faults show": [
        *(a_fault_that_never_shows, a_fault_that_shows_late, a_suspension_that_never_shows, a_child_that_stays_away),
        *(a_watch_that_stays_closed, a_hostile_rank_that_nobody_counts, a_frozen_rank_that_nobody_shows),
        *(a_full_volume_that_nobody_shows, a_hostile_job_that_nobody_counts),
    ],
    "jobs converge": [a_job_that_waits_for_ever, a_policy_of_an_earlier_edit],
    "memory is bounded": [much_memory],
    "the operator goes on": [an_operator_that_a_job_ends],
    "its tasks go on": [a_task_that_ended],
    "it is healthy": [a_sick_operator],
    "checkpoints never go back": [a_checkpoint_that_goes_back],
    "directories never go back": [
        a_directory_that_goes_back,
        a_directory_that_is_empty_again,
        a_checkpoint_that_is_torn,
    ],
    "attempts begin at the newest checkpoint": [an_attempt_that_begins_before_the_newest],
    "losses equal an undisturbed run's": [another_loss, a_loss_that_is_no_number],
}
CASES = [(name, history) for name, histories in BROKEN.items() for history in histories]


def test_every_invariant_has_a_history_that_breaks_it():
    assert BROKEN.keys() == INVARIANTS.keys()


@pytest.mark.parametrize(("invariant", "history"), CASES, ids=[history.__name__ for _, history in CASES])
def test_a_broken_invariant_is_found(invariant, history):
    assert invariant in found(history())


def test_a_violation_names_seed_moment_invariant_and_what_was_seen():
    (violation,) = check(two_gangs().records)
    assert str(violation) == (
        "seed 5, 105.0 s: at most one live gang per job: job u1 has pods of attempts [1, 2] at the same time"
    )


def halted(seconds=90, shown=None, unanswered=1.0):
    """A rank is frozen for so long; 20 s later the status is this, and the operator has counted so many polls."""
    counted = [{"polls": {"NoAnswer": each}} for each in (1.0, unanswered)]
    fault = {"number": 0, "kind": "rank frozen"}
    history = running().add("metrics", pid="o-1", values=counted[0])
    history.add("fault", state="begun", jobs=[UID], attempt=1, shows="job halted", restarts=True, **fault).later(20)
    history.job(**{"attempt": 1, "phase": "Running", **(shown or {})}).add("metrics", pid="o-1", values=counted[1])
    return history.later(seconds - 20).add("fault", state="ended", **fault).later(200).phase("clearing")


def test_a_halt_that_shows_nowhere_is_found_and_a_short_one_need_not_show():
    assert "faults show" in found(halted())
    assert "faults show" not in found(halted(seconds=25))


@pytest.mark.parametrize(
    "shown",
    [
        {"shown": {"conditions": {"Running": "RanksTraining", "Stalled": "NoIteration"}}},
        {"shown": {"phase": "Restarting"}},
        {"shown": {"attempt": 2}},
        {"unanswered": 2.0},
    ],
    ids=["stalled", "restarting", "began again", "rank 0 does not answer"],
)
def test_a_halt_shows_in_the_status_or_in_the_polls(shown):
    assert "faults show" not in found(halted(**shown))


@pytest.mark.parametrize("record", [("job", {"says": True}), ("saved", {"seconds": 9.0})], ids=["status", "metric"])
def test_a_slow_volume_shows_in_the_status_or_in_the_time_of_a_checkpoint(record):
    what, fields = record
    history = running().fault(kind="volume slow", shows="storage reported", ends=50)
    if what == "job":
        history.job(attempt=1, phase="Running", **fields)
    else:
        history.add(what, job=UID, **fields)
    assert "faults show" not in found(history.later(90).phase("clearing"))


def test_checkpoints_that_are_pruned_and_later_ones_of_the_same_attempt_are_no_step_back():
    history = published([20, 1], [40, 1]).add("published", job="a", steps=[[40, 1], [60, 2]], broken=[])
    assert found(history.add("checkpoint", job="a", step=40, attempt=2)) == set()


def test_an_outage_postpones_what_must_show():
    history = running().fault(restarts=True, shows="restarted")
    history.fault(number=1, kind="API server stopped", jobs=(), outage=True, ends=300)
    assert found(history.job(attempt=2, phase="Restarting", conditions={"Restarting": "Error"})) == set()


def test_a_job_that_was_deleted_needs_no_restart():
    assert found(running().fault(restarts=True, shows="restarted").job("DELETED", attempt=1).later(99)) == set()


def test_a_job_that_was_deleted_just_before_the_fault_needs_no_restart():
    history = running().job("DELETED", attempt=1, phase="Running").later(0.02)
    history.fault(restarts=True, shows="restarted").later(99).phase("clearing")
    assert found(history) == set()


def test_a_gap_of_the_watch_hides_attempts_and_deletions():
    history = running().fault(restarts=True)
    history.job("LISTED", attempt=4).add("listed", plural="heterotpjobs", uids=[UID])
    history.pod("p-4", 4, "LISTED").add("listed", plural="pods", uids=["p-4"])
    assert found(history) <= {"at most one live gang per job"}
    assert found(history.job(attempt=6)) >= {"attempts rise by one"}


def test_intervals_are_merged_and_subtracted():
    assert merged([(5, 6), (1, 3), (2, 4)]) == [(1, 4), (5, 6)]
    assert calm_seconds([(1, 4), (5, 6)], 0, 10) == 6


def test_a_history_is_read_as_it_was_written(tmp_path):
    recorder = Recorder(tmp_path / "run")
    recorder.write("run", seed=3)
    recorder.write("phase", phase="end")
    recorder.close()
    recorder.write("phase", phase="too late")
    first, last = read(tmp_path / "run")
    assert (first["seed"], last["phase"]) == (3, "end") and first["at"] <= last["at"]
    json.dumps(check([first, last]))


@pytest.mark.parametrize(("paused", "excused"), [(40, True), (0, False)])
def test_a_slow_volume_need_not_show_while_a_paused_node_holds_up_the_checkpoints(paused, excused):
    history = running().add("fault", number=0, kind="volume slow", state="begun", jobs=[UID], shows="storage reported")
    history.fault(number=1, kind="node paused", jobs=(), outage=paused > 0, ends=paused)
    history.later(50 - paused).add("fault", number=0, kind="volume slow", state="ended")
    assert ("faults show" not in found(history.later(120).phase("clearing"))) == excused
