"""Suspension, deadlines, what is left of a job after its end, and healing of its children."""

import copy

import pytest
from heterotp_api import names
from heterotp_operator.reconcile.actions import DeleteJob
from heterotp_operator.reconcile.observed import Refusal
from support.reconcile_world import EPOCH, World, manifest, with_policy

# -- suspension -----------------------------------------------------------------------------------------------


def test_a_job_suspended_from_the_start_creates_no_pods():
    world = with_policy(suspend=True)
    world.settle()
    assert (world.phase, world.pods, world.objects) == ("Suspended", {}, {})
    assert "startTime" not in world.status


def test_suspend_and_resume_is_another_attempt_that_does_not_count():
    world = World(manifest()).started()
    world.edit(runPolicy={"suspend": True})
    world.settle()
    assert (world.phase, world.status["waitingFor"]) == ("Pending", "PodsTerminating")
    world.vanish()
    world.settle()
    assert (world.phase, world.status["waitingFor"], world.status["attempt"]) == ("Suspended", "", 2)
    assert [event.reason for event in world.events] == ["GangRunning", "Suspended"]
    world.now += 1000
    world.edit(runPolicy={"suspend": False})
    world.started()
    assert (world.phase, world.status["attempt"], world.status["restarts"]) == ("Running", 2, 0)
    assert world.status["startTime"] == "2023-11-14T22:30:00Z"  # deadlines start again, as in batch/v1


def test_a_resume_waits_until_the_old_pods_are_gone_and_is_no_restart():
    world = World(manifest()).started()
    world.edit(runPolicy={"suspend": True})
    world.settle()
    world.edit(runPolicy={"suspend": False})
    world.settle()
    assert (set(world.born.values()), len(world.born)) == ({1}, 3)
    world.vanish()
    world.started()
    assert (world.phase, world.status["attempt"], world.status["restarts"]) == ("Running", 2, 0)


@pytest.mark.parametrize("pods", [2, 4], ids=["fewer", "more"])
def test_a_shape_changed_during_an_unobserved_suspension_gets_new_pods(pods):
    world = World(manifest(groups=(("a", 3, 1),))).started()
    resized = manifest(groups=(("a", pods, 1),))["spec"]
    world.edit(**resized)  # the API server allows it only while suspend is true; the operator was away then
    world.settle()
    assert (world.status["attempt"], world.status["restarts"]) == (2, 0)
    assert [event.message for event in world.events if event.reason == "GangRestarted"] == [
        "attempt 2 follows attempt 1: the job was suspended, changed and resumed unseen"
    ]
    world.vanish()
    world.started()
    assert (sorted(world.pods), world.phase) == ([f"job-a-{index}-2" for index in range(pods)], "Running")


# -- deadlines ------------------------------------------------------------------------------------------------


def test_active_deadline():
    world = with_policy(activeDeadlineSeconds=100).started()
    world.now += 99
    decision = world.settle()
    assert (world.phase, decision.requeue_after) == ("Running", pytest.approx(1))
    world.now += 1
    world.settle()
    assert (world.phase, world.condition("Failed")["reason"]) == ("Failed", "DeadlineExceeded")
    assert all("deletionTimestamp" in pod["metadata"] for pod in world.pods.values())


@pytest.mark.parametrize("state", ["pending", "running but never met"])
def test_pre_running_deadline(state):
    world = with_policy(preRunningDeadlineSeconds=100)
    world.settle()
    if state != "pending":
        world.run()
    world.now += 99
    world.settle()
    assert world.phase != "Failed"
    world.now += 1
    world.settle()
    assert world.condition("Failed")["reason"] == "PreRunningDeadlineExceeded"


def test_pre_running_deadline_counts_without_pods_too():
    world = with_policy(preRunningDeadlineSeconds=100)
    world.refuse["a"] = Refusal(403, "Forbidden", "exceeded quota")
    world.reconcile()
    world.now += 100
    world.reconcile()
    assert "waited for: Quota" in world.condition("Failed")["message"]


def test_pre_running_deadline_is_over_once_an_own_command_runs_even_if_a_pod_turns_unready():
    template = {"spec": {"containers": [{"name": names.CONTAINER, "command": ["train"]}]}}
    world = World(manifest(training=False, template=template, runPolicy={"preRunningDeadlineSeconds": 100})).started()
    world.now += 500
    world.play("job-a-0-1", "Running", ready=False)
    world.settle()
    assert (world.phase, "PodsReady" in world.true) == ("Running", False)


# -- the end --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "left"),
    [("None", {"job-a-0-1", "job-b-0-1", "job-b-1-1"}), ("Running", {"job-a-0-1"}), ("All", set())],
)
def test_clean_pod_policy_after_a_failure(policy, left):
    world = with_policy(cleanPodPolicy=policy, backoffLimit=0).started()
    world.end("job-a-0-1", 1)
    world.settle()
    world.vanish()
    world.settle()
    assert (set(world.pods), world.phase) == (left, "Failed")
    assert [group["failed"] for group in world.status["workerGroups"]] == [1, 0]
    assert [group["active"] for group in world.status["workerGroups"]] == [0, 2 if policy == "None" else 0]


def test_time_to_live():
    world = with_policy(ttlSecondsAfterFinished=60).started()
    for name in world.pods:
        world.end(name, 0)
    decision = world.settle()
    assert (world.phase, decision.requeue_after) == ("Succeeded", pytest.approx(60))
    world.now = EPOCH + 60
    decision = world.plan()
    assert decision.actions == (DeleteJob("uid-job", world.job["metadata"]["resourceVersion"]),)


@pytest.mark.parametrize("kind", ["Service", "ConfigMap"])
@pytest.mark.parametrize("damage", ["removed", "edited", "unlabelled"])
def test_missing_or_changed_children_are_applied_again(kind, damage):
    world = World(manifest()).started()
    before = copy.deepcopy(world.objects[kind])
    if damage == "removed":
        del world.objects[kind]
    elif damage == "unlabelled":
        world.objects[kind]["metadata"]["labels"] = {}
    elif kind == "Service":
        world.objects[kind]["spec"]["selector"] = {}
    else:
        world.objects[kind]["data"] = {}
    world.settle()
    assert (world.objects[kind], world.status["attempt"]) == (before, 1)
