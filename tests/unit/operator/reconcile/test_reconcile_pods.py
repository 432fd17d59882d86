"""What the operator makes of a template."""

import json

import pytest
from heterotp_api import names
from heterotp_api.job import HeteroTPJobSpec
from heterotp_api.names import Env
from support.reconcile_world import World, manifest


def pods_of(**spec):
    world = World(manifest(groups=(("a", 1, 2), ("b", 2, 1)), **spec))
    world.settle()
    return [world.pods[name] for name in ("job-a-0-1", "job-b-0-1", "job-b-1-1")]


def trainer(pod):
    return next(c for c in pod["spec"]["containers"] if c["name"] == names.CONTAINER)


def env(pod):
    return {entry["name"]: entry.get("value") for entry in trainer(pod)["env"]}


def mounts(pod):
    return {mount["mountPath"]: mount["name"] for mount in trainer(pod)["volumeMounts"]}


def test_names_labels_and_owner():
    pods = pods_of()
    assert [pod["metadata"]["labels"][names.LABEL_FIRST_RANK] for pod in pods] == ["0", "2", "3"]
    for pod in pods:
        metadata = pod["metadata"]
        assert metadata["labels"][names.LABEL_MANAGED_BY] == names.MANAGED_BY
        assert metadata["labels"][names.LABEL_JOB] == "job"
        (owner,) = metadata["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("uid-job", True, True)
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (metadata["name"], "job-gang")


def test_environment_of_each_pod():
    pods = pods_of(rendezvous={"port": 30000}, metrics={"port": 9500})
    assert [env(pod)[Env.FIRST_RANK] for pod in pods] == ["0", "2", "3"]
    assert [env(pod)[Env.PROCESSES] for pod in pods] == ["2", "1", "1"]
    assert [env(pod)[Env.GROUP] for pod in pods] == ["a", "b", "b"]
    for pod in pods:
        values = env(pod)
        assert values[Env.MASTER_ADDR] == "job-a-0-1.job-gang"
        assert (values[Env.MASTER_PORT], values[Env.WORLD_SIZE]) == ("30000", "4")
        assert (values[Env.STATUS_PORT], values[Env.ATTEMPT]) == ("9500", "1")
        assert HeteroTPJobSpec.model_validate_json(values[Env.SPEC]).process_count == 4
        assert json.loads(values[Env.DEVICE]) == {"type": "auto"}
    assert [env(pod)[Env.JOB_UID] for pod in pods] == [pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods]
    assert [Env.CONTROL_DIR in env(pod) for pod in pods] == [True, False, False]
    assert [env(pod).get(Env.LAST_WORDS) for pod in pods] == ["/dev/termination-log"] * 3


def test_ports():
    first, second, _ = pods_of()
    ports = {port["name"]: port["containerPort"] for port in trainer(first)["ports"]}
    assert ports == {"metrics-0": 9400, "metrics-1": 9401, "rendezvous": 29500}
    assert [port["name"] for port in trainer(second)["ports"]] == ["metrics-0"]


@pytest.mark.parametrize(
    ("checkpoint", "directory", "volume"),
    [
        ({"persistentVolumeClaim": "disk"}, "/var/lib/heterotp/checkpoints", {"persistentVolumeClaim": "disk"}),
        ({"path": "/data/ck"}, "/data/ck", None),
        ({}, "/var/lib/heterotp/checkpoints", {"emptyDir": {}}),
        (None, None, None),
    ],
    ids=["claim", "path", "neither", "none"],
)
def test_rank_0_alone_has_control_document_and_checkpoints(checkpoint, directory, volume):
    first, *others = pods_of(**({} if checkpoint is None else {"checkpoint": checkpoint}))
    assert env(first).get(Env.CHECKPOINT_DIR) == directory
    volumes = {v["name"]: v for v in first["spec"]["volumes"]}
    assert volumes["heterotp-control"]["configMap"]["name"] == "job-control"
    assert mounts(first)[env(first)[Env.CONTROL_DIR]] == "heterotp-control"
    if volume is None:
        assert "heterotp-checkpoints" not in volumes
    elif "emptyDir" in volume:
        assert volumes["heterotp-checkpoints"]["emptyDir"] == {}
    else:
        assert volumes["heterotp-checkpoints"]["persistentVolumeClaim"]["claimName"] == "disk"
    for pod in others:
        assert Env.CHECKPOINT_DIR not in env(pod)
        assert {v["name"] for v in pod["spec"]["volumes"]} == {"heterotp-tmp", "heterotp-shm"}


def test_every_container_is_restricted():
    spec = {"containers": [{"name": names.CONTAINER}, {"name": "sidecar"}], "initContainers": [{"name": "prepare"}]}
    for pod in pods_of(template={"spec": spec}):
        context = pod["spec"]["securityContext"]
        assert (context["runAsNonRoot"], context["runAsUser"], context["fsGroup"]) == (True, 65532, 65532)
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["spec"]["automountServiceAccountToken"] is False
        for each in [*pod["spec"]["containers"], *pod["spec"]["initContainers"]]:
            assert each["securityContext"]["allowPrivilegeEscalation"] is False
            assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert trainer(pod)["securityContext"]["readOnlyRootFilesystem"] is True
        assert set(mounts(pod)) >= {"/tmp", "/dev/shm"}


def test_fields_of_the_template_win_outside_of_the_operators_own():
    spec = {
        "containers": [
            {
                "name": names.CONTAINER,
                "image": "mine:1",
                "env": [{"name": "OMP_NUM_THREADS", "value": "2"}, {"name": "WORLD_SIZE", "value": "99"}],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
                "volumeMounts": [{"name": "fast", "mountPath": "/tmp"}],
                "ports": [{"name": "debug", "containerPort": 5678}],
                "securityContext": {"readOnlyRootFilesystem": False},
            }
        ],
        "volumes": [{"name": "fast", "emptyDir": {}}],
        "nodeSelector": {"gpu": "a100"},
        "securityContext": {"runAsUser": 1000},
        "terminationGracePeriodSeconds": 5,
        "restartPolicy": "Always",
        "hostname": None,
    }
    labels = {"team": "vision", names.LABEL_MANAGED_BY: "helm", names.LABEL_JOB: "other", names.LABEL_ATTEMPT: "9"}
    first, *_ = pods_of(template={"metadata": {"labels": labels, "annotations": {"note": "1"}}, "spec": spec})
    container = trainer(first)
    assert container["image"] == "mine:1"
    assert (env(first)["OMP_NUM_THREADS"], env(first)["WORLD_SIZE"]) == ("2", "4")
    assert len([e for e in container["env"] if e["name"] == "WORLD_SIZE"]) == 1
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert mounts(first)["/tmp"] == "fast"
    assert container["ports"][0]["name"] == "debug"
    assert container["securityContext"]["readOnlyRootFilesystem"] is False
    assert first["spec"]["nodeSelector"] == {"gpu": "a100"}
    assert first["spec"]["securityContext"]["runAsUser"] == 1000
    assert (first["spec"]["terminationGracePeriodSeconds"], first["spec"]["restartPolicy"]) == (5, "Never")
    metadata = first["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"]) == ("vision", {"note": "1"})
    assert metadata["labels"][names.LABEL_MANAGED_BY] == names.MANAGED_BY
    assert (metadata["labels"][names.LABEL_JOB], metadata["labels"][names.LABEL_ATTEMPT]) == ("job", "1")


def test_defaults_for_an_empty_template():
    first, *_ = pods_of(template={})
    assert trainer(first)["image"] == "heterotp/trainer:test"
    assert first["spec"]["terminationGracePeriodSeconds"] == 60
    assert trainer(first)["command"][-1] == "heterotp_trainer.launch"


def test_an_own_command_runs_through_the_launcher():
    container = {"name": names.CONTAINER, "command": ["torchtrain"], "args": ["--fast", "1"]}
    first, *_ = pods_of(training=False, template={"spec": {"containers": [container]}})
    command = trainer(first)["command"]
    assert command[command.index("heterotp_trainer.launch") :] == [
        *["heterotp_trainer.launch", "--", "torchtrain", "--fast", "1"]
    ]
    assert "args" not in trainer(first)


def test_the_longest_hostname_fits():
    name, group = "j" * 20, "g" * 37
    world = World(manifest(name=name, groups=((group, 1, 1),)))
    world.settle()
    (pod,) = world.pods.values()
    assert len(pod["spec"]["hostname"]) <= names.MAX_HOSTNAME


# -- gang providers -------------------------------------------------------------------------------------------


def gang(**fields):
    world = World(manifest(runPolicy={"gang": fields}))
    world.settle()
    return world


def test_kueue_sees_a_queue_a_group_and_a_gate():
    world = gang(provider="kueue", queue="team", admission="PodGroup", priorityClassName="high")
    for pod in world.pods.values():
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] == "job-1"
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "3"
        assert pod["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
        assert pod["spec"]["priorityClassName"] == "high"
    assert "PodGroup" not in world.objects


@pytest.mark.parametrize(
    ("fields", "api", "spec", "scheduler"),
    [
        (
            {"provider": "volcano", "queue": "q", "priorityClassName": "high"},
            "scheduling.volcano.sh/v1beta1",
            {"minMember": 3, "queue": "q", "priorityClassName": "high"},
            "volcano",
        ),
        (
            {"provider": "coscheduling", "scheduleTimeoutSeconds": 30},
            "scheduling.x-k8s.io/v1alpha1",
            {"minMember": 3, "scheduleTimeoutSeconds": 30},
            "scheduler-plugins-scheduler",
        ),
    ],
    ids=["volcano", "coscheduling"],
)
def test_schedulers_with_a_pod_group(fields, api, spec, scheduler):
    world = gang(**fields)
    group = world.objects["PodGroup"]
    assert (group["apiVersion"], group["spec"], group["metadata"]["name"]) == (api, spec, "job")
    for pod in world.pods.values():
        assert pod["spec"]["schedulerName"] == scheduler
        marks = {**pod["metadata"]["labels"], **pod["metadata"].get("annotations", {})}
        key = "scheduling.k8s.io/group-name" if scheduler == "volcano" else "scheduling.x-k8s.io/pod-group"
        assert marks[key] == "job"
    del world.objects["PodGroup"]
    world.settle()
    assert world.objects["PodGroup"] == group


def test_without_a_provider_nothing_is_marked():
    world = gang(provider="none")
    assert all("schedulerName" not in pod["spec"] for pod in world.pods.values())
    assert set(world.objects) == {"Service", "ConfigMap"}
