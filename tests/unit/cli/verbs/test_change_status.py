"""The status of a change, and how long the command waits for it."""

import pytest
from heterotp_cli.verbs import change_status
from heterotp_cli.verbs.target import STALE_SECONDS, WAIT_SECONDS, Change, ChangeStatus, await_change
from heterotp_cli.verbs.view import JobView, of_job, of_run
from support.cli_views import balancing, job_body, job_status, run_status

OLD = "control.json: an old refusal"
IN_FORCE = ChangeStatus("in force")


def refused(generation, text=OLD):
    """Return the fields of a job whose ranks refused a control document."""
    return {"problem": text, "problemReason": "ControlRefused", "problemGeneration": generation}


def job(phase="Running", **reported):
    return of_job(job_body(job_status(phase=phase, balancing=balancing(**reported))))


def run(state="running", **changes):
    return of_run(run_status(**changes), [], state)


@pytest.mark.parametrize(
    ("now", "seen", "passed", "found"),
    [
        (job(), 1, 0.5, ChangeStatus("pending", change_status.NOT_TAKEN_UP)),
        (
            job(generation=4),
            2,
            0.5,
            ChangeStatus("pending", "the operator published generation 4 of the control document, the ranks follow 3"),
        ),
        (job(generation=4, appliedGeneration=4), 2, 0.5, IN_FORCE),
        (job(), 2, 0.5, IN_FORCE),  # the same policy as before: nothing new was published
        (
            job(problem="spec.balancing.policy.zero: no", problemReason="PolicyDoesNotFit"),
            2,
            0.5,
            ChangeStatus("refused", "spec.balancing.policy.zero: no"),
        ),
        (job(**refused(3), generation=4, appliedGeneration=4), 2, 0.5, IN_FORCE),
        (
            job(**refused(3), generation=4),
            2,
            STALE_SECONDS,
            ChangeStatus("pending", "the operator published generation 4 of the control document, the ranks follow 3"),
        ),
        (job(**refused(4), generation=4), 2, 0.5, ChangeStatus("refused", OLD)),
        (job(**refused(None), generation=4), 2, STALE_SECONDS, ChangeStatus("refused", OLD)),
        (job("Suspended"), 1, 0.5, ChangeStatus("later", "takes effect as soon as the job runs; it is Suspended now")),
        (job("Failed"), 2, 0.5, ChangeStatus("refused", "the job has ended (Failed)")),
    ],
)
def test_a_policy_of_a_job(now, seen, passed, found):
    assert change_status.job_policy_status(now, seen, 2, passed) == found


@pytest.mark.parametrize(
    ("now", "phase", "message", "found"),
    [
        (job(), "", "", ChangeStatus("pending", change_status.NOT_TAKEN_UP)),
        (job(), "Pending", "", ChangeStatus("pending", "the injection is Pending")),
        (job(), "Pending", "its pod is gone", ChangeStatus("pending", "its pod is gone")),
        (job(), "Injecting", "", IN_FORCE),
        (job(), "Finished", "", IN_FORCE),
        (job(), "Failed", "job demo: no such rank", ChangeStatus("refused", "job demo: no such rank")),
        (
            job(**refused(4, "control.json: full"), generation=4),
            "Pending",
            "",
            ChangeStatus("refused", "control.json: full"),
        ),
        (job(**refused(3), generation=4), "Pending", "", ChangeStatus("pending", "the injection is Pending")),
        (job(**refused(3)), "Pending", "", ChangeStatus("pending", "the injection is Pending")),
        (
            job(problem="no such policy", problemReason="PolicyNotFound", generation=4, appliedGeneration=3),
            "Pending",
            "",
            ChangeStatus("pending", "the injection is Pending"),
        ),
        (job(problem="no such policy"), "Injecting", "", IN_FORCE),
        (
            JobView("demo"),
            "",
            "",
            ChangeStatus("later", "takes effect as soon as the job runs; it is not seen by the operator now"),
        ),
    ],
)
def test_an_injection_of_a_job(now, phase, message, found):
    assert change_status.job_injection_status(job(), now, phase, message, 0.5) == found


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (job(), ChangeStatus("pending", change_status.NOT_TAKEN_UP)),
        (
            job(generation=4),
            ChangeStatus("pending", "the operator published generation 4 of the control document, the ranks follow 3"),
        ),
        (job(generation=4, appliedGeneration=4), IN_FORCE),
        (job("Suspended"), ChangeStatus("later", "no rank follows it: the job is Suspended")),
    ],
)
def test_removal_of_an_injection(now, found):
    assert change_status.job_removal_status(job(), now) == found


@pytest.mark.parametrize(
    ("now", "passed", "found"),
    [
        (
            run(),
            0.5,
            ChangeStatus("pending", "the file holds generation 2 of the control document, the ranks follow 1"),
        ),
        (run(applied_generation=2), 0.5, IN_FORCE),
        (run(control_error=OLD), 0.5, ChangeStatus("pending", change_status.rollout(run(), 2, "the file holds").text)),
        (run(control_error=OLD), STALE_SECONDS, ChangeStatus("refused", OLD)),
        (
            run(control_error=OLD, control_error_generation=1),
            STALE_SECONDS,
            ChangeStatus("pending", change_status.rollout(run(), 2, "the file holds").text),
        ),
        (run(control_error=OLD, control_error_generation=2), 0.5, ChangeStatus("refused", OLD)),
        (
            run("starting", applied_generation=0),
            0.5,
            ChangeStatus("pending", "the file holds generation 2 of the control document, the ranks follow 0"),
        ),
        (run("unfinished"), 0.5, ChangeStatus("refused", "the job has ended (unfinished)")),
    ],
)
def test_a_change_of_a_run(now, passed, found):
    assert change_status.run_change_status(now, 2, passed) == found


class Clock:
    """Time that only sleeping moves."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_await_change_returns_when_the_change_is_in_force():
    clock = Clock()
    change = Change("", "", lambda passed: IN_FORCE if passed >= 1 else ChangeStatus("pending", "not yet"))
    assert await_change(change, clock, clock.sleep) == (IN_FORCE, 1.0)


def test_await_change_ends_after_its_limit():
    clock = Clock()
    change = Change("", "", lambda passed: ChangeStatus("pending", "not yet"))
    assert await_change(change, clock, clock.sleep) == (ChangeStatus("pending", "not yet"), WAIT_SECONDS)


@pytest.mark.parametrize(("need", "text"), [(True, "no; what was in force before is back"), (False, "no")])
def test_a_refused_change_is_put_back_where_there_is_need(need, text):
    clock, calls = Clock(), []
    change = Change("", "", lambda passed: ChangeStatus("refused", "no"), lambda: calls.append(1) or need)
    assert await_change(change, clock, clock.sleep) == (ChangeStatus("refused", text), 0.0)
    assert calls == [1]
