"""When the keeper asks for checkpoints, and what stops it from writing one; a gang of one, on a clock of its own."""

import dataclasses

import pytest
import torch
import torch.distributed as dist
from heterotp_api.job import HeteroTPJobSpec
from heterotp_trainer.checkpoint import files, stream
from heterotp_trainer.checkpoint.keeper import CheckpointKeeper
from heterotp_trainer.launch.environment import read_environment


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def keeper(tmp_path, clock, **checkpoint):
    spec = HeteroTPJobSpec.model_validate(
        {"tensorParallelDegree": 1, "workerGroups": [{"name": "a"}], "training": {}, "checkpoint": checkpoint}
    )
    environment = read_environment({"RANK": "0", "WORLD_SIZE": "1"})
    environment = dataclasses.replace(environment, spec=spec, checkpoint_dir=tmp_path)
    return CheckpointKeeper(environment, None, clock)


@pytest.fixture
def state():
    parameter = torch.nn.Parameter(torch.ones(2))
    return {"a": parameter}, torch.optim.SGD([parameter], lr=0.1), None


def test_by_time_a_checkpoint_is_due_once_per_period(alone, tmp_path):
    clock = Clock()
    mine = keeper(tmp_path, clock, everySeconds=60)
    asked = []
    for iteration in range(10):
        clock.now += 15
        asked.append(mine.is_due(iteration))
    assert asked == [False, False, False, True, False, False, False, True, False, False]


def test_by_iterations(alone, tmp_path):
    mine = keeper(tmp_path, Clock(), everyIterations=4)
    assert [iteration for iteration in range(1, 13) if mine.is_due(iteration)] == [4, 8, 12]


def test_without_a_directory_nothing_is_due(alone):
    mine = keeper(None, Clock(), everyIterations=1)
    assert not mine.enabled and not mine.is_due(1)


def test_an_iteration_is_written_once(alone, tmp_path, state):
    mine = keeper(tmp_path, Clock())
    parameters, optimizer, _ = state
    tp = dataclasses.make_dataclass("TP", ["rank"])(0)
    assert mine.save(3, parameters, optimizer, tp) is not None
    assert mine.save(3, parameters, optimizer, tp) is None
    assert [path.name for path in files.paths(tmp_path)] == ["step-000000003"]


def test_an_attempt_that_lost_the_directory_writes_no_more(alone, tmp_path, state):
    mine = keeper(tmp_path, Clock())
    files.claim(tmp_path, 7)
    parameters, optimizer, _ = state
    with pytest.raises(files.OwnerError, match="attempt 7 owns"):
        mine.save(3, parameters, optimizer, dataclasses.make_dataclass("TP", ["rank"])(0))
    assert files.paths(tmp_path) == []


def test_a_failure_is_reported_again_without_another_collective(alone, tmp_path, state, monkeypatch):
    mine = keeper(tmp_path, Clock())
    parameters, optimizer, _ = state
    tp = dataclasses.make_dataclass("TP", ["rank"])(0)
    monkeypatch.setattr(
        files.Writer, "_publish", lambda *arguments: (_ for _ in ()).throw(OSError(28, "No space left"))
    )
    with pytest.raises(files.WriteError, match="No space left"):
        mine.save(3, parameters, optimizer, tp)
    monkeypatch.setattr(stream, "gather", lambda *arguments: pytest.fail("a collective that peers do not enter"))
    with pytest.raises(files.WriteError, match="No space left"):
        mine.save(3, parameters, optimizer, tp)
