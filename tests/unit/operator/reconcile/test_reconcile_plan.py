"""The ladder of the plan, rung by rung."""

import copy

import pytest
from heterotp_api import names
from heterotp_operator.reconcile.actions import (
    ApplyConfigMap,
    BumpAttempt,
    CreatePod,
    CreateService,
    Decision,
    DeletePod,
    DryRunPod,
)
from heterotp_operator.reconcile.observed import Refusal
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


@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", "someone"])
def test_a_job_of_another_manager_is_left_alone(manager):
    assert with_policy(managedBy=manager).plan() == Decision()


def test_a_job_managed_by_this_operator_is_reconciled():
    assert with_policy(managedBy="heterotp.io/operator").plan().actions


def test_a_job_being_deleted_is_left_to_the_garbage_collector():
    world = World(manifest()).started()
    world.job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert world.plan() == Decision()


# -- what nothing is made for ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"tensorParallelDegree": 4}, ["spec.tensorParallelDegree", "sum of pods"]),
        ({"checkpoint": {"keep": 0}}, ["spec.checkpoint.keep", "0"]),
        ({"surprise": 1}, ["spec.surprise", "is not a known field"]),
    ],
    ids=["degree", "keep", "unknown"],
)
def test_a_spec_that_the_models_refuse_fails_naming_field_and_value(edit, words):
    world = World(manifest(**edit))
    world.settle()
    failed = world.condition("Failed")
    assert (world.phase, failed["reason"], world.pods, world.objects) == ("Failed", "InvalidSpec", {}, {})
    assert all(word in failed["message"] for word in words), failed["message"]
    assert world.status["completionTime"]


def test_pods_of_a_spec_that_becomes_invalid_are_deleted():
    world = World(manifest()).started()
    world.edit(tensorParallelDegree=5)
    world.settle()
    world.vanish()
    assert (world.settle().actions, world.phase, world.pods) == ((), "Failed", {})
    assert (world.status["attempt"], world.status["restarts"]) == (1, 0)


def test_a_succeeded_job_stays_succeeded_after_an_edit_of_its_spec():
    world = World(manifest()).started()
    for name in world.pods:
        world.end(name, 0)
    world.settle()
    world.edit(tensorParallelDegree=5)
    assert world.settle() == Decision()
    assert world.phase == "Succeeded"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"spec": {"containers": "x"}}, ["template.spec.containers", "'x'", "must be a list of maps"]),
        ({"spec": []}, ["template.spec:", "must be a map"]),
        ({"metadata": {"labels": ["a"]}}, ["template.metadata.labels", "must be a map"]),
        ({"spec": {"containers": [{"env": ["A=b"]}]}}, ["spec.containers[0].env", "must be a list of maps"]),
        ({"spec": {"containers": [{"command": "run"}]}}, ["containers[0].command", "'run'", "list of strings"]),
        ({"spec": {"initContainers": [{"securityContext": 1}]}}, ["initContainers[0].securityContext", "a map"]),
        ({"spec": {"volumes": {}}}, ["template.spec.volumes", "must be a list of maps"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_template_of_the_wrong_shape_fails_naming_the_field(template, words):
    world = World(manifest(template=template))
    world.settle()
    assert (world.phase, world.condition("Failed")["reason"], world.pods) == ("Failed", "InvalidSpec", {})
    message = world.condition("Failed")["message"]
    assert message.startswith("spec.workerGroups[0].")
    assert all(word in message for word in words), message


@pytest.mark.parametrize("field", ["command", "args"])
def test_a_command_beside_training_is_refused(field):
    world = World(manifest(template={"spec": {"containers": [{"name": names.CONTAINER, field: ["python", "x.py"]}]}}))
    world.settle()
    assert world.condition("Failed")["message"] == (
        f"spec.workerGroups[0].template.spec.containers: trainer: {field}: \"['python', 'x.py']\" "
        "must be absent where training is given"
    )


def test_a_job_without_training_and_command_is_refused():
    world = World(manifest(training=False))
    world.settle()
    assert "must have the command to run" in world.condition("Failed")["message"]


@pytest.mark.parametrize(("code", "reason"), [(422, "Invalid"), (400, "BadRequest")])
def test_a_template_that_the_server_refuses_fails_with_the_servers_message(code, reason):
    message = 'spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes"'
    world = World(manifest(), refuse={"b": Refusal(code, reason, message)})
    world.settle()
    failed = world.condition("Failed")
    assert (failed["reason"], world.pods, world.objects) == ("InvalidPodTemplate", {}, {})
    assert "Sometimes" in failed["message"]
    assert "workerGroups b" in failed["message"]


@pytest.mark.parametrize(
    ("refuse", "reason", "words"),
    [
        (
            {"PodGroup": Refusal(404, "NotFound", "the server could not find the requested resource")},
            "GangSchedulerMissing",
            "gang.provider",
        ),
        (
            {
                "Service": Refusal(
                    409, "AlreadyExists", 'services "job-ranks" already exists and is not owned by this job'
                )
            },
            "NameTaken",
            "rename",
        ),
        (
            {"a": Refusal(409, "AlreadyExists", 'pods "job-a-0-1" already exists and is not owned by this job')},
            "NameTaken",
            "rename",
        ),
        ({"ConfigMap": Refusal(422, "Invalid", "too long")}, "Invalid", "ConfigMap: too long"),
        ({"a": Refusal(400, "", "denied by the team's rules")}, "Invalid", "denied by"),
        ({"a": Refusal(422, "TeamRules", "no GPU left")}, "Invalid", "no GPU left"),
    ],
    ids=["scheduler", "service", "pod", "configmap", "webhook", "webhook with a reason"],
)
def test_a_refused_child_is_reported_once_and_tried_again(refuse, reason, words):
    world = World(manifest(runPolicy={"gang": {"provider": "volcano"}}), refuse=refuse)
    world.reconcile()
    decision = world.reconcile()
    created = world.condition("Created")
    assert (created["status"], created["reason"], world.status["waitingFor"]) == ("False", reason, "Creation")
    assert words in created["message"]
    assert [event.reason for event in world.events] == [reason]
    assert decision.requeue_after == 5
    world.refuse.clear()
    world.settle()
    assert (len(world.pods), world.condition("Created")["status"], world.status["waitingFor"]) == (3, "True", "")


def test_a_quota_is_waited_for_and_then_the_job_starts():
    world = World(manifest(), refuse={"a": Refusal(403, "Forbidden", "exceeded quota")})
    decision = world.reconcile()
    assert (world.status["waitingFor"], world.phase, world.pods) == ("Quota", "Pending", {})
    assert (world.condition("Created")["status"], world.condition("Created")["message"]) == (
        "False",
        "a: exceeded quota",
    )
    assert decision.requeue_after == 5
    world.refuse.clear()
    world.settle()
    assert (len(world.pods), world.phase, world.status["waitingFor"]) == (3, "Starting", "")


def test_a_refusal_with_another_message_is_no_new_event():
    world = World(manifest(), refuse={"a": Refusal(403, "Forbidden", "exceeded quota: used 7")})
    world.reconcile()
    world.refuse["a"] = Refusal(403, "Forbidden", "exceeded quota: used 8")
    world.reconcile()
    world.reconcile()
    assert world.condition("Created")["message"] == "a: exceeded quota: used 8"
    assert [event.reason for event in world.events] == ["Forbidden"]


def reword(world):
    """Give every condition another message, as another version of the operator would."""
    for condition in world.status["conditions"]:
        condition["message"] = "in other words"


@pytest.mark.parametrize("version", ["this operator", "an older operator"])
@pytest.mark.parametrize("lost", [None, "job-b-1-1"], ids=["healthy", "a pod is gone"])
def test_messages_may_be_reworded_under_a_live_job(version, lost):
    world = World(manifest()).started()
    assert world.status["completedAttempt"] == 1
    world.events.clear()
    reword(world)
    if version == "an older operator":
        del world.status["completedAttempt"]
    if lost is None:
        world.settle()
        assert (world.events, world.status["attempt"], world.phase) == ([], 1, "Running")
        assert world.status["completedAttempt"] == 1
        return
    del world.pods[lost]
    world.settle()
    assert world.condition("Restarting")["reason"] == "PodLost"
    assert (world.born[lost], world.status["attempt"]) == (1, 2)
    assert world.status["completedAttempt"] == 1


def test_an_attempt_without_pods_of_an_older_operator_has_lost_no_pod():
    world = World(manifest()).started()
    del world.status["completedAttempt"]
    world.pods.clear()
    world.job["status"]["attempt"] = 2
    world.settle()
    assert (sorted(world.pods), world.status["attempt"]) == (["job-a-0-2", "job-b-0-2", "job-b-1-2"], 2)
    assert (world.status["completedAttempt"], world.status["restarts"]) == (2, 0)


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
