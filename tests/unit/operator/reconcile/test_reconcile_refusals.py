"""Jobs for which nothing is made: bad specs and templates, and what the API server refuses."""

import pytest
from heterotp_api import names
from heterotp_operator.reconcile.actions import Decision
from heterotp_operator.reconcile.observed import Refusal
from support.reconcile_world import World, manifest


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
