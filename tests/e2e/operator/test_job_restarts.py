"""Pods, ranks and operators that go away under a running job."""

import time

import pytest
from support.cluster_job import job, template, two_ranks
from support.kube import until

pytestmark = pytest.mark.e2e
EVERY = 20


def test_a_killed_pod_restarts_the_gang_from_the_checkpoint(space, measured):
    space.claim()
    run = space.apply(two_ranks("killed", iterations=160, checkpoint={"everyIterations": EVERY}))
    run.trained(attempt=1, iteration=2 * EVERY + 5)
    victim = run.pods(1)[1]["metadata"]
    killed = time.monotonic()
    space.kube.delete("pods", space.name, victim["name"], gracePeriodSeconds=0)
    document = run.trained(attempt=2, iteration=1)
    resumed_from = document["resumedFrom"]
    run.trained(attempt=2, iteration=resumed_from + 1)
    measured["pod kill to next iteration"] = time.monotonic() - killed
    status = run.reaches(phase="Succeeded")

    reached = max(iteration for attempt, iteration in run.seen if attempt == 1)
    assert 2 * EVERY <= resumed_from <= reached + EVERY
    assert all(iteration >= resumed_from for attempt, iteration in run.seen if attempt == 2)
    assert status["training"]["resumedFrom"] == resumed_from
    assert status["training"]["iteration"] == 160
    assert (status["attempt"], status["restarts"]) == (2, 1)


def test_the_leader_dies_and_the_job_goes_on_as_one_gang(space, release):
    run = space.apply(two_ranks("led", iterations=250))
    run.trained(attempt=1, iteration=5)
    gang = {pod["metadata"]["uid"] for pod in run.pods().values()}
    leader = until("an operator leads", release.leader)
    space.kube.delete("pods", "heterotp-system", leader, gracePeriodSeconds=0)
    until("another operator leads", lambda: release.leader() not in (None, leader), 60, 0.2)

    status = run.reaches(phase="Succeeded")
    assert {pod["metadata"]["uid"] for pod in run.pods().values()} <= gang
    assert (status["attempt"], status["restarts"]) == (1, 0)
    assert status["training"]["iteration"] == 250


def test_a_rank_that_fails_is_restarted_until_the_limit(space):
    groups = [{"name": "only", "template": template(command=["sh", "-c", "exit 1"])}]
    run = space.apply(job("failing", groups, runPolicy={"backoffLimit": 1}))
    status = run.reaches(phase="Failed")
    assert (status["attempt"], status["restarts"]) == (2, 1)
    assert "exit code 1" in run.condition("Failed")["message"]


def test_uninstall_keeps_the_jobs_and_the_next_operator_takes_them_over(space, release):
    run = space.apply(two_ranks("kept", iterations=150))
    run.trained(attempt=1, iteration=3)
    gang = {pod["metadata"]["uid"] for pod in run.pods().values()}
    release.uninstall()
    assert run.status["phase"] == "Running"
    assert {pod["metadata"]["uid"] for pod in run.pods().values()} == gang

    release.install()
    status = run.reaches(phase="Succeeded")
    assert (status["attempt"], status["restarts"]) == (1, 0)
