"""What a rank reads from its environment."""

import json

import pytest
from heterotp_api.names import Env
from heterotp_trainer.launch.environment import read_environment

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "host", "MASTER_PORT": "1234"}
SPEC = {
    "tensorParallelDegree": 2,
    "workerGroups": [{"name": "a"}, {"name": "b", "device": {"type": "emulated", "teraflops": 1}}],
}


def test_torchruns_variables_are_enough():
    environment = read_environment(TORCHRUN)
    assert (environment.rank, environment.ranks, environment.local_rank) == (1, 2, 1)
    assert (environment.master_address, environment.master_port) == ("host", 1234)
    assert environment.spec.training is not None and environment.spec.initial_shares == "even"
    assert environment.checkpoint_dir is environment.status_port is environment.workdir is None


def test_the_spec_gives_group_and_device_and_ports_count_up():
    environment = read_environment({**TORCHRUN, Env.SPEC: json.dumps(SPEC), Env.STATUS_PORT: "9400"})
    assert environment.groups == ("a", "b")
    assert environment.device.type == "emulated"
    assert environment.status_port == 9401
    assert environment.spec.training is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"RANK": "x"}, "RANK: 'x' must be a whole number"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE: '' must be a whole number"),
        ({"WORLD_SIZE": "3", Env.SPEC: json.dumps(SPEC)}, "3 ranks, but the spec's worker groups make 2"),
        ({Env.SPEC: json.dumps({**SPEC, "tensorParallelDegree": 9})}, "HETEROTP_SPEC: tensorParallelDegree"),
        ({Env.DEVICE: "{"}, "HETEROTP_DEVICE: is not JSON"),
        ({Env.RENDEZVOUS_SECRET: "short"}, "HETEROTP_RENDEZVOUS_SECRET: has 5 characters: give at least 16"),
        ({Env.JOB_UID: "../other"}, "HETEROTP_JOB_UID: '../other' must be up to 64 letters"),
    ],
    ids=["rank", "world", "disagree", "spec", "device", "secret", "uid"],
)
def test_an_invalid_variable_is_named(wrong, words):
    with pytest.raises(ValueError, match=":") as error:
        read_environment({**TORCHRUN, **wrong})
    assert words in str(error.value)


def test_the_secret_is_never_shown():
    environment = read_environment({**TORCHRUN, Env.RENDEZVOUS_SECRET: "s3cret" * 5})
    assert environment.secret == "s3cret" * 5 and "s3cret" not in repr(environment)
