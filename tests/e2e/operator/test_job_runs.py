"""A job from `kubectl apply` to its end on two unlike nodes."""

import time

import pytest
from support.cluster_job import SMALL, group, job, two_ranks

pytestmark = pytest.mark.e2e


def test_a_job_trains_on_both_workers_and_succeeds(space, measured):
    applied = time.monotonic()
    run = space.apply(two_ranks("digits", iterations=120, seconds=0.02, model={"preset": "vit-tiny"}))
    run.trained(attempt=1, iteration=1)
    measured["kubectl apply to first iteration"] = time.monotonic() - applied
    nodes = {pod["spec"]["nodeName"] for pod in run.pods().values()}
    status = run.reaches(phase="Succeeded")

    assert status["training"]["iteration"] == 120
    assert 0.2 < status["training"]["accuracy"] <= 1  # chance is 0.1; 0.3 to 0.45 are seen, by the order of sums
    assert len(nodes) == 2
    assert {rank["node"] for rank in status["ranks"]} == nodes
    assert [rank["rank"] for rank in status["ranks"]] == [0, 1]
    for rank in status["ranks"]:
        assert rank["computeSeconds"] > 0.05
        assert 0 < rank["matmulSeconds"] < rank["computeSeconds"]
        assert rank["waitSeconds"] >= 0
    # how much each owns in the end follows from how busy this machine is: see test_unlike_nodes_share_by_their_speed
    assert sum(rank["share"] for rank in status["ranks"]) == pytest.approx(1, abs=0.01)
    assert status["restarts"] == 0
    assert run.condition("Succeeded")["status"] == "True"


def test_ranks_serve_metrics(space):
    run = space.apply(two_ranks("measured", iterations=3000))
    run.trained(attempt=1, iteration=3)
    for rank, pod in run.pods().items():
        text = run.ask(pod["metadata"]["name"], "/metrics")
        assert "heterotp_iterations_total" in text
        assert "heterotp_phase_seconds_total" in text
        assert f'rank="{rank}"' in text
    assert run.ask(run.pods()[0]["metadata"]["name"], "/healthz") == "ok\n"


def test_suspend_takes_the_pods_away_and_resume_goes_on(space):
    space.claim()
    run = space.apply(two_ranks("paused", iterations=120, checkpoint={"everyIterations": 20}))
    run.trained(attempt=1, iteration=30)
    attempt = run.status["attempt"]
    run.edit({"runPolicy": {"suspend": True}})
    run.reaches(phase="Suspended")
    assert run.pods() == {}
    stopped_at = max(iteration for _, iteration in run.seen)

    run.edit({"runPolicy": {"suspend": False}})
    status = run.reaches(phase="Succeeded")
    assert status["attempt"] > attempt
    assert status["training"]["resumedFrom"] >= 20
    assert status["training"]["resumedFrom"] >= stopped_at // 20 * 20
    assert status["training"]["iteration"] == 120
    assert status["restarts"] == 0


def test_two_ranks_in_one_pod_and_one_beside_them(space):
    groups = [group("fast", "a100", 0.05, 0.02), group("slow", "p100", 0.025, 0.02)]
    groups[0]["processesPerPod"] = 2
    body = job("uneven", groups, training={"model": SMALL, "iterations": 10, "batchSize": 16})
    body["spec"]["tensorParallelDegree"] = 3
    run = space.apply(body)
    status = run.reaches(phase="Succeeded")
    assert [rank["rank"] for rank in status["ranks"]] == [0, 1, 2]
    pods = [rank["pod"] for rank in status["ranks"]]
    assert pods[0] == pods[1] != pods[2]
