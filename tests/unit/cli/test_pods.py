"""What each pod of a local gang is started with."""

import json
import socket

from heterotp_api.job import HeteroTPJobSpec
from heterotp_api.load import parse_object
from heterotp_api.names import Env
from heterotp_cli.pods import Ports, free_ports, own_command, pod_commands, program_digest
from support.manifest_table import manifest

EMULATED = {"type": "emulated", "teraflops": 0.05}


def job(**spec):
    return parse_object(manifest({"patch": {"spec": spec}}))


def commands(a_job, tmp_path, base=None, gpus=(None, None)):
    return pod_commands(a_job, 2, tmp_path, Ports(20000, (20010, 20020)), "python", base or {}, gpus)


def test_each_pod_gets_its_ranks_ports_and_device(tmp_path):
    groups = [{"name": "fast", "processesPerPod": 3}, {"name": "slow", "device": EMULATED, "template": {"a": 1}}]
    fast, slow = commands(job(workerGroups=groups), tmp_path)
    assert [fast.environment[n] for n in (Env.FIRST_RANK, Env.PROCESSES, Env.STATUS_PORT)] == ["0", "3", "20010"]
    assert [slow.environment[n] for n in (Env.FIRST_RANK, Env.PROCESSES, Env.STATUS_PORT)] == ["3", "1", "20020"]
    assert json.loads(slow.environment[Env.DEVICE])["teraflops"] == 0.05
    assert (slow.name, list(fast.ranks)) == ("slow-0", [0, 1, 2])
    for pod in (fast, slow):
        assert pod.environment[Env.WORLD_SIZE] == "4"
        assert pod.environment[Env.MASTER_PORT] == "20000"
        assert pod.environment[Env.ATTEMPT] == "2"
        assert pod.environment[Env.WORKDIR] == pod.environment[Env.CONTROL_DIR] == str(tmp_path)
        assert pod.environment[Env.CHECKPOINT_DIR] == str(tmp_path / "checkpoints")
        assert pod.environment[Env.LAST_WORDS] == str(tmp_path / "last_words" / f"{pod.name}.jsonl")
        assert pod.arguments == ("python", "-P", "-m", "heterotp_trainer.launch")
        assert "template" not in pod.environment[Env.SPEC]
        assert HeteroTPJobSpec.model_validate_json(pod.environment[Env.SPEC]).process_count == 4


def test_checkpoint_path_of_the_manifest_wins(tmp_path):
    pods = commands(job(checkpoint={"path": "/elsewhere"}), tmp_path)
    assert {pod.environment[Env.CHECKPOINT_DIR] for pod in pods} == {"/elsewhere"}


def test_threads_are_given_unless_the_user_did(tmp_path):
    assert commands(job(), tmp_path)[0].environment["OMP_NUM_THREADS"].isdigit()
    assert commands(job(), tmp_path, {"OMP_NUM_THREADS": "7"})[0].environment["OMP_NUM_THREADS"] == "7"


def test_the_digest_of_a_program_changes_with_command_and_environment():
    def digest(**container):
        template = {"spec": {"containers": [{"name": "trainer", "command": ["train"], **container}]}}
        groups = [{"name": "a", "pods": 2, "processesPerPod": 2, "template": template}]
        return program_digest(job(training=None, workerGroups=groups))

    assert digest() == digest(image="another")
    assert len({digest(), digest(args=["--steps", "9"]), digest(env=[{"name": "A", "value": "b"}])}) == 3


def test_own_command_and_environment_come_from_the_template(tmp_path):
    container = {"name": "trainer", "command": ["train"], "args": ["--lr", 1], "env": [{"name": "A", "value": "b"}]}
    template = {"spec": {"containers": [{"name": "sidecar", "command": ["no"]}, container]}}
    groups = [{"name": "a", "pods": 2, "processesPerPod": 2, "template": template}]
    first, _ = commands(job(training=None, workerGroups=groups), tmp_path)
    assert first.arguments == ("python", "-P", "-m", "heterotp_trainer.launch", "--", "train", "--lr", "1")
    assert first.environment["A"] == "b"


def test_python_of_an_own_command_is_the_one_with_the_library(tmp_path):
    ports, base = Ports(20000, (20010, 20020)), {"PATH": "/usr/bin"}
    pods = pod_commands(job(), 1, tmp_path, ports, "/venv/bin/python", base, (None, None))
    assert pods[0].environment["PATH"] == "/venv/bin:/usr/bin"


def test_each_pod_sees_its_own_gpus(tmp_path):
    base = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    pods = commands(job(), tmp_path, base, gpus=("0,1,2", "3"))
    assert [pod.environment["CUDA_VISIBLE_DEVICES"] for pod in pods] == ["0,1,2", "3"]
    assert "CUDA_VISIBLE_DEVICES" not in commands(job(), tmp_path)[0].environment


def test_a_template_without_containers_has_no_command():
    assert own_command({}) == ((), {})


def test_ports_are_free_distinct_and_consecutive_per_pod():
    ports = free_ports(job())
    used = [ports.rendezvous, *range(ports.metrics[0], ports.metrics[0] + 3), ports.metrics[1]]
    assert len(set(used)) == 5
    for port in used:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_taken_ports_are_passed_over():
    first = free_ports(job()).rendezvous
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", first))
        assert free_ports(job()).rendezvous != first


def test_the_identity_of_a_run_wins_over_the_environment_of_the_caller(tmp_path):
    identity = {Env.JOB_UID: "mine", Env.RENDEZVOUS_SECRET: "s" * 16}
    base = {Env.JOB_UID: "of the caller"}
    (place,) = pod_commands(
        job(workerGroups=[{"name": "a", "pods": 1, "processesPerPod": 4}]),
        1,
        tmp_path,
        Ports(1, (2,)),
        "python",
        base,
        [None],
        identity,
    )
    assert identity.items() <= place.environment.items()
