"""How a change stands, and how long it is waited for."""

from dataclasses import replace

import pytest
from heterotp_cli.verbs import change_status as standing
from heterotp_cli.verbs.target import STALE_SECONDS, WAIT_SECONDS, Change, Standing, await_change
from heterotp_cli.verbs.view import JobView, of_job, of_run
from support.cli_views import balancing, job_body, job_status, run_status

OLD = "control.json: an old refusal"
IN_FORCE = Standing("in force")


def job(phase="Running", **told):
    return of_job(job_body(job_status(phase=phase, balancing=balancing(**told))))


def run(state="running", **changes):
    return of_run(run_status(**changes), [], state)


@pytest.mark.parametrize(
    ("now", "seen", "passed", "found"),
    [
        (job(), 1, 0.5, Standing("pending", standing.UNSEEN)),
        (
            job(generation=4),
            2,
            0.5,
            Standing("pending", "the operator published generation 4 of the control document, the ranks follow 3"),
        ),
        (job(generation=4, appliedGeneration=4), 2, 0.5, IN_FORCE),
        (job(), 2, 0.5, IN_FORCE),  # the same policy as before: nothing new was published
        (job(problem="spec.balancing.policy.zero: no"), 2, 0.5, Standing("refused", "spec.balancing.policy.zero: no")),
        (job(problem=OLD, generation=4, appliedGeneration=4), 2, 0.5, IN_FORCE),
        (job(problem=OLD, generation=4), 2, STALE_SECONDS, Standing("refused", OLD)),
        (job("Suspended"), 1, 0.5, Standing("later", "holds as soon as the job runs; it is Suspended now")),
        (job("Failed"), 2, 0.5, Standing("refused", "the job has ended (Failed)")),
    ],
)
def test_a_policy_of_a_job(now, seen, passed, found):
    assert standing.policy_of_job(job(problem=OLD), now, seen, 2, passed) == found


@pytest.mark.parametrize(
    ("now", "phase", "message", "found"),
    [
        (job(), "", "", Standing("pending", standing.UNSEEN)),
        (job(), "Pending", "", Standing("pending", "the injection is Pending")),
        (job(), "Pending", "its pod is gone", Standing("pending", "its pod is gone")),
        (job(), "Injecting", "", IN_FORCE),
        (job(), "Finished", "", IN_FORCE),
        (job(), "Failed", "job demo: no such rank", Standing("refused", "job demo: no such rank")),
        (
            job(problem="control.json: full", generation=3, appliedGeneration=2),
            "Pending",
            "",
            Standing("refused", "control.json: full"),
        ),
        (
            job(problem="no such policy", generation=3, appliedGeneration=3),
            "Pending",
            "",
            Standing("pending", "the injection is Pending"),
        ),
        (job(problem="no such policy"), "Injecting", "", IN_FORCE),
        (
            JobView("demo"),
            "",
            "",
            Standing("later", "holds as soon as the job runs; it is not seen by the operator now"),
        ),
    ],
)
def test_an_injection_of_a_job(now, phase, message, found):
    assert standing.injection_of_job(job(), now, phase, message, 0.5) == found


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (job(), Standing("pending", standing.UNSEEN)),
        (
            job(generation=4),
            Standing("pending", "the operator published generation 4 of the control document, the ranks follow 3"),
        ),
        (job(generation=4, appliedGeneration=4), IN_FORCE),
        (job("Suspended"), Standing("later", "no rank follows it: the job is Suspended")),
    ],
)
def test_an_injection_that_was_taken_back(now, found):
    assert standing.taken_back_of_job(job(), now) == found


@pytest.mark.parametrize(
    ("now", "passed", "found"),
    [
        (run(), 0.5, Standing("pending", "the file holds generation 2 of the control document, the ranks follow 1")),
        (run(applied_generation=2), 0.5, IN_FORCE),
        (run(control_error=OLD), 0.5, Standing("pending", standing.spread(run(), 2, "the file holds").text)),
        (run(control_error=OLD), STALE_SECONDS, Standing("refused", OLD)),
        (run(control_error="new"), 0.5, Standing("refused", "new")),
        (
            run("starting", applied_generation=0),
            0.5,
            Standing("pending", "the file holds generation 2 of the control document, the ranks follow 0"),
        ),
        (run("unfinished"), 0.5, Standing("refused", "the job has ended (unfinished)")),
    ],
)
def test_a_change_of_a_run(now, passed, found):
    assert standing.of_run(replace(run(), refused=OLD), now, 2, passed) == found


class Clock:
    """Time that only sleeping moves."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_a_change_is_waited_for_until_it_stands():
    clock = Clock()
    change = Change("", "", lambda passed: IN_FORCE if passed >= 1 else Standing("pending", "not yet"))
    assert await_change(change, clock, clock.sleep) == (IN_FORCE, 1.0)


def test_a_change_is_not_waited_for_for_ever():
    clock = Clock()
    change = Change("", "", lambda passed: Standing("pending", "not yet"))
    assert await_change(change, clock, clock.sleep) == (Standing("pending", "not yet"), WAIT_SECONDS)
