"""The ladder of the plan, rung by rung."""

import copy
import dataclasses

import pytest
from heterotp_api import names
from heterotp_operator.observe import PodWatch
from heterotp_operator.reconcile.actions import (
    MOST_PODS,
    ApplyConfigMap,
    BumpAttempt,
    CreatePod,
    CreateService,
    Decision,
    DeletePod,
    DryRunPod,
)
from heterotp_operator.reconcile.observed import Refusal
from heterotp_operator.reconcile.plan import plan
from support.reconcile_world import Killed, Settings, World, manifest, with_policy


def kinds(decision):
    return [type(action) for action in decision.actions]


def test_a_new_job_is_accepted_then_numbered_then_created():
    world = World(manifest())
    assert kinds(world.plan()) == [
        *[DryRunPod, DryRunPod, BumpAttempt, CreateService, ApplyConfigMap],
        *[CreatePod, CreatePod, CreatePod],
    ]
    assert world.settle().actions == ()
    assert sorted(world.pods) == ["job-a-0-1", "job-b-0-1", "job-b-1-1"]
    assert (world.phase, world.status["attempt"], world.status["restarts"]) == ("Starting", 1, 0)
    assert world.status["observedGeneration"] == 1


def test_a_template_that_was_accepted_is_tried_again_only_after_a_refusal():
    seen = World(manifest()).observe()
    known = dataclasses.replace(seen, accepted={seen.template_key})
    assert kinds(plan(known))[0] is BumpAttempt
    elsewhere = dataclasses.replace(seen, accepted={("other", seen.template_key[1])})
    assert kinds(plan(elsewhere))[:2] == [DryRunPod, DryRunPod]
    other_class = World(manifest(runPolicy={"gang": {"priorityClassName": "typo"}})).observe()
    assert kinds(plan(dataclasses.replace(other_class, accepted=known.accepted)))[:2] == [DryRunPod, DryRunPod]
    refused = dataclasses.replace(known, refusals={"a": Refusal(403, "Forbidden", "exceeded quota")})
    assert kinds(plan(refused))[:2] == [DryRunPod, DryRunPod]


@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", "someone"])
def test_a_job_of_another_manager_is_left_alone(manager):
    assert with_policy(managedBy=manager).plan() == Decision()


def test_a_job_managed_by_this_operator_is_reconciled():
    assert with_policy(managedBy="heterotp.io/operator").plan().actions


def test_a_job_being_deleted_is_left_to_the_garbage_collector():
    world = World(manifest()).started()
    world.job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert world.plan() == Decision()


# -- restarts -------------------------------------------------------------------------------------------------


def test_a_restart_waits_until_every_old_pod_is_gone():
    world = World(manifest()).started()
    world.end("job-b-1-1", 1)
    world.settle()
    assert (world.phase, world.status["waitingFor"]) == ("Restarting", "PodsTerminating")
    assert sorted(world.pods) == ["job-a-0-1", "job-b-0-1"]  # they make their last checkpoint
    world.vanish()
    world.settle()
    assert sorted(world.pods) == ["job-a-0-2", "job-b-0-2", "job-b-1-2"]
    assert world.objects["Service"]["spec"]["selector"][names.LABEL_ATTEMPT] == "2"
    assert (world.status["attempt"], world.status["restarts"]) == (2, 1)


@pytest.mark.parametrize("victims", [1, 2, 3])
def test_pods_deleted_by_hand_are_another_attempt_even_when_all_went_at_once(victims):
    world = World(manifest()).started()
    for name in sorted(world.pods)[:victims]:
        del world.pods[name]
    world.settle()
    world.vanish()
    world.settle()
    assert {name.rsplit("-", 1)[1] for name in world.pods} == {"2"}
    assert set(world.born.values()) == {1}
    assert world.status["restarts"] == 1


def test_a_pod_stuck_on_a_lost_node_is_forced_after_its_grace():
    world = World(manifest()).started()
    world.take("job-a-0-1", grace=60)
    world.settle()
    world.now += 89
    assert DeletePod("job-a-0-1", "job-a-0-1#1", grace_seconds=0) not in world.settle().actions
    assert 0 < world.plan().requeue_after <= 5
    world.now += 2
    assert DeletePod("job-a-0-1", "job-a-0-1#1", grace_seconds=0) in world.plan().actions


@pytest.mark.parametrize("ahead", [95, 1e6])
def test_a_wrong_wall_clock_forces_no_deletion(ahead):
    world = World(manifest()).started()
    world.take("job-a-0-1", grace=60)
    world.settle()
    world.clock_ahead = ahead
    world.now += 1
    assert [action for action in world.settle().actions if getattr(action, "grace_seconds", None) == 0] == []
    world.now += 90
    assert DeletePod("job-a-0-1", "job-a-0-1#1", grace_seconds=0) in world.plan().actions


def test_a_pod_that_an_earlier_process_saw_terminate_counts_anew():
    world = World(manifest()).started()
    world.take("job-a-0-1", grace=60)
    world.settle()
    world.now += 1000
    world.watch = PodWatch()  # the operator was started again
    assert all(getattr(action, "grace_seconds", None) != 0 for action in world.plan().actions)


@pytest.mark.parametrize("text", ["zero", "", "-1", "0x0", "\u0663", "9" * 63])
@pytest.mark.parametrize("label", [names.LABEL_FIRST_RANK, names.LABEL_ATTEMPT, names.LABEL_TEMPLATE_HASH])
def test_labels_that_hold_no_number_do_not_raise(label, text):
    world = World(manifest()).started()
    world.pods["job-b-0-1"]["metadata"]["labels"][label] = text
    world.pods["job-b-1-1"]["metadata"].pop("annotations", None)
    decision = world.plan()
    assert decision.status is not None
    del world.pods["job-b-1-1"]["metadata"]["labels"][label]
    assert world.plan().status is not None


def test_a_large_gang_is_made_and_deleted_by_parts():
    world = World(manifest(groups=(("a", 300, 1),)))
    looks = [len([a for a in world.reconcile().actions if isinstance(a, CreatePod)]) for _ in range(3)]
    assert looks == [MOST_PODS, 300 - MOST_PODS, 0]
    world.edit(runPolicy={"suspend": True})
    looks = [len([a for a in world.reconcile().actions if isinstance(a, DeletePod)]) for _ in range(3)]
    assert looks == [MOST_PODS, 300 - MOST_PODS, 0]


def test_backoff_limit_names_the_last_cause():
    world = with_policy(backoffLimit=0).started()
    world.end("job-a-0-1", 137, "OOMKilled")
    world.settle()
    failed = world.condition("Failed")
    assert failed["reason"] == "BackoffLimitExceeded"
    assert "OOMKilled, exit code 137" in failed["message"]
    assert (world.status["attempt"], world.status["restarts"]) == (1, 0)


def test_after_a_kill_between_counter_and_status_nothing_of_the_old_attempt_is_shown():
    world = World(manifest()).started()
    world.end("job-b-1-1", 1)
    world.kill_after = world.writes + 1
    with pytest.raises(Killed):
        world.settle()
    assert (world.status["attempt"], "Running" in world.true) == (2, True)
    world.settle()
    assert world.phase == "Restarting"
    assert not {"Created", "PodsReady", "Running"} & world.true
    cause = world.condition("Restarting")
    assert cause["reason"] == "Error" and "job-b-1-1" in cause["message"]
    assert [event.message for event in world.events if event.reason == "GangRestarted"] == [
        f"attempt 2 follows attempt 1: {cause['message']}"
    ]


def test_a_gang_is_never_made_of_two_templates():
    world = World(manifest())
    world.kill_after = 4  # counter, Service, ConfigMap, first pod
    with pytest.raises(Killed):
        world.settle()
    groups = copy.deepcopy(world.job["spec"]["workerGroups"])
    groups[0]["template"]["spec"]["containers"][0]["image"] = "other"
    world.edit(workerGroups=groups)
    world.settle()
    world.vanish()
    world.settle()
    assert len({pod["metadata"]["labels"][names.LABEL_TEMPLATE_HASH] for pod in world.pods.values()}) == 1
    assert {name.rsplit("-", 1)[1] for name in world.pods} == {"2"}
    assert world.status["restarts"] == 0


def test_a_changed_template_waits_for_the_next_attempt():
    world = World(manifest()).started()
    groups = copy.deepcopy(world.job["spec"]["workerGroups"])
    groups[1]["template"]["spec"]["containers"][0]["image"] = "newer"
    world.edit(workerGroups=groups)
    assert world.settle().actions == ()
    assert "SpecChangePending" in world.true
    assert world.status["observedGeneration"] == 2
    world.end("job-a-0-1", 1)
    world.settle()
    world.vanish()
    world.started()
    assert "SpecChangePending" not in world.true
    assert world.pods["job-b-0-2"]["spec"]["containers"][0]["image"] == "newer"


def test_another_default_image_changes_nothing_for_templates_that_name_their_own():
    named = {"spec": {"containers": [{"name": names.CONTAINER, "image": "mine"}]}}
    for template, pending in ((None, True), (named, False)):
        world = World(manifest(template=template)).started()
        world.settings = Settings(trainer_image="heterotp/trainer:next")
        assert world.settle().actions == ()
        assert ("SpecChangePending" in world.true) == pending


def test_an_edited_policy_annotates_the_pod_of_rank_0_once():
    world = World(manifest()).started()
    world.log.clear()
    world.edit(balancing={"policy": {"strategy": "MIG"}})
    world.settle()
    assert [entry for entry in world.log if not entry.startswith("status")] == ["apply ConfigMap", "touch job-a-0-1"]
    assert world.pods["job-a-0-1"]["metadata"]["annotations"][names.ANNOTATION_CONTROL] == "2"


def test_pods_that_an_earlier_job_of_the_name_left_behind_are_deleted():
    """A garbage collector that misses the end of a job, because another one of its name is there, never does it."""
    world = World(manifest())
    old = copy.deepcopy(World(manifest()).started().pods["job-a-0-1"])
    old["metadata"]["ownerReferences"][0]["uid"] = "uid-before"
    world.pods["job-a-0-1"] = old
    assert [action.name for action in world.plan().actions] == ["job-a-0-1"]
    old["metadata"]["ownerReferences"][0]["name"] = "another"  # somebody's who only wrote our label
    assert world.plan().actions == ()


def test_old_pods_of_the_same_name_are_waited_for():
    world = World(manifest())
    old = copy.deepcopy(World(manifest()).started().pods["job-a-0-1"])
    old["metadata"]["ownerReferences"][0]["uid"] = "uid-before"
    world.pods["job-a-0-1"] = old
    world.settle()
    assert (world.status["waitingFor"], list(world.pods), world.phase) == ("PodsTerminating", ["job-a-0-1"], "Pending")
    assert world.condition("Created")["message"].endswith("an earlier job of this name are gone: job-a-0-1")
    del world.pods["job-a-0-1"]
    world.settle()
    assert len(world.pods) == 3
