"""When the keeper asks for checkpoints, and what stops it from writing one; a gang of one, on a clock of its own."""

import dataclasses
import random
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist
from heterotp_api.job import HeteroTPJobSpec
from heterotp_trainer.checkpoint import claims, files, stream
from heterotp_trainer.checkpoint.contents import Contents
from heterotp_trainer.checkpoint.errors import NotFiniteError, OwnerError, WriteError
from heterotp_trainer.checkpoint.keeper import CheckpointKeeper
from heterotp_trainer.checkpoint.kept import Kept
from heterotp_trainer.checkpoint.storage import Storage
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.launch.environment import read_environment
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from support.old_checkpoint import BEFORE_STATES, as_version_1
from torch import nn

ALONE = TPContext(None, 0, 1, Device(torch.device("cpu"), "cpu"), NullClock(), UnitPlan.empty(1))


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


def keeper(tmp_path, clock=time.monotonic, **checkpoint):
    spec = HeteroTPJobSpec.model_validate(
        {"tensorParallelDegree": 1, "workerGroups": [{"name": "a"}], "training": {}, "checkpoint": checkpoint}
    )
    environment = read_environment({"RANK": "0", "WORLD_SIZE": "1"})
    environment = dataclasses.replace(environment, spec=spec, checkpoint_dir=tmp_path)
    return CheckpointKeeper(environment, None, clock)


def contents(kept=(), model=None, lr=0.1):
    """Return a model with running statistics, its optimizer and what is kept, (name, object) each."""
    model = model or nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    held = Contents(model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9), Kept())
    for name, thing in kept:
        held.kept.add(name, thing)
    return held


def test_by_time_a_checkpoint_is_due_once_per_period(alone, tmp_path):
    clock = Clock()
    mine = keeper(tmp_path, clock, everySeconds=60)
    asked = []
    for _ in range(10):
        clock.now += 15
        asked.append(mine.is_due())
    assert asked == [False, False, False, True, False, False, False, True, False, False]


def test_by_iterations(alone, tmp_path):
    mine = keeper(tmp_path, Clock(), everyIterations=4)
    assert [iteration for iteration in range(1, 13) if mine.falls_on(iteration)] == [4, 8, 12]
    assert not mine.is_due()


def test_without_a_directory_nothing_is_due(alone):
    mine = keeper(None, Clock(), everyIterations=1)
    assert not mine.enabled and not mine.is_due() and not mine.falls_on(1)


def test_an_iteration_is_written_once(alone, tmp_path):
    mine = keeper(tmp_path, Clock())
    held = contents()
    assert mine.save(3, held, ALONE) is not None
    assert mine.save(3, held, ALONE) is None
    assert [path.name for path in files.paths(tmp_path)] == ["step-000000003"]


def test_the_best_outlives_the_checkpoint_that_it_was(alone, tmp_path):
    mine, held = keeper(tmp_path, Clock(), keep=1), contents()
    mine.save(3, held, ALONE)
    mine.keep_best(3)
    mine.save(4, held, ALONE)
    assert [path.name for path in files.paths(tmp_path)] == ["step-000000004"]
    assert files.verify(tmp_path / files.BEST).iteration == 3
    mine.save(5, held, ALONE)
    mine.keep_best(5)
    assert files.verify(tmp_path / files.BEST).iteration == 5
    assert keeper(tmp_path).restore(contents(), ALONE)[0] == 5  # of the newest, not of the best


def test_the_best_is_copied_where_files_have_no_second_name(alone, tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(files.os, "link", refuse)
    mine = keeper(tmp_path, Clock())
    mine.save(3, contents(), ALONE)
    mine.keep_best(3)
    assert files.verify(tmp_path / files.BEST).iteration == 3


def test_a_best_one_that_cannot_be_written_is_said(alone, tmp_path, monkeypatch):
    mine = keeper(tmp_path, Clock())
    mine.save(3, contents(), ALONE)

    def refuse(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.shutil, "copytree", refuse)
    with pytest.raises(WriteError, match=r"the best checkpoint in .* cannot be kept: No space left on device"):
        mine.keep_best(3)


def test_only_the_owner_keeps_a_best_one(alone, tmp_path):
    mine = keeper(tmp_path, Clock())
    mine.save(3, contents(), ALONE)
    claims.take(tmp_path, claims.Claim.of("", 7))
    with pytest.raises(OwnerError, match="attempt 7 owns"):
        mine.keep_best(3)
    assert not (tmp_path / files.BEST).exists()


def test_without_a_directory_there_is_no_best(alone, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keeper(None).keep_best(3)
    assert list(tmp_path.iterdir()) == []


def test_a_state_that_cannot_be_stored_is_refused_where_no_checkpoint_is_yet(alone, tmp_path):
    held = contents([("order", Counting(next=iter(())))])
    with pytest.raises(ValueError, match=r"^session\.keep\('order'\): state_dict\(\)\['next'\] is of type .*_iterator"):
        keeper(tmp_path).restore(held, ALONE)


def test_what_is_kept_after_a_start_without_checkpoint_is_refused(alone, tmp_path):
    mine, held = keeper(tmp_path), contents()
    assert mine.restore(held, ALONE) == (0, {})
    with pytest.raises(ValueError, match="too late"):
        held.kept.add("noise", torch.Generator())


def test_an_attempt_that_lost_the_directory_writes_no_more(alone, tmp_path):
    mine = keeper(tmp_path, Clock())
    claims.take(tmp_path, claims.Claim.of("", 7))
    held = contents()
    with pytest.raises(OwnerError, match="attempt 7 owns"):
        mine.save(3, held, ALONE)
    assert files.paths(tmp_path) == []


def test_a_failure_is_reported_again_without_another_collective(alone, tmp_path, monkeypatch):
    mine = keeper(tmp_path, Clock())
    held = contents()
    monkeypatch.setattr(
        files.Writer, "_publish", lambda *arguments: (_ for _ in ()).throw(OSError(28, "No space left"))
    )
    with pytest.raises(WriteError, match="No space left"):
        mine.save(3, held, ALONE)
    monkeypatch.setattr(stream, "gather", lambda *arguments: pytest.fail("a collective that peers do not enter"))
    with pytest.raises(WriteError, match="No space left"):
        mine.save(3, held, ALONE)


class Counting:
    """What a user may keep."""

    def __init__(self, **state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def stepped(held):
    """Make a step, so that weights, statistics and momentum are not those of the start."""
    held.model(torch.arange(8.0).view(4, 2)).square().sum().backward()
    held.optimizer.step()
    return held


def written(tmp_path, held):
    """Write a checkpoint of iteration 7."""
    keeper(tmp_path).save(7, held, ALONE)


def test_buffers_settings_and_kept_states_are_restored(alone, tmp_path, capsys):
    generator = torch.Generator().manual_seed(3)
    before = stepped(contents([("mine", Counting(a=1, b=(2, torch.ones(2)))), ("noise", generator)], lr=0.3))
    written(tmp_path, before)
    wanted = torch.rand(2, generator=generator)
    state, other = Counting(), torch.Generator()
    after = contents([("mine", state), ("noise", other)])
    assert keeper(tmp_path).restore(after, ALONE)[0] == 7
    assert state.state["a"] == 1 and state.state["b"][0] == 2 and torch.equal(state.state["b"][1], torch.ones(2))
    assert torch.equal(torch.rand(2, generator=other), wanted)
    assert all(torch.equal(a, b) for a, b in zip(before.buffers.values(), after.buffers.values(), strict=True))
    assert after.optimizer.state_dict()["param_groups"] == before.optimizer.state_dict()["param_groups"]
    assert "checkpoint of iteration 7: settings of the optimizer as in the checkpoint: lr" in capsys.readouterr().out


def test_generators_continue(alone, tmp_path):
    def draw():
        return [float(torch.rand(())), random.random(), float(np.random.rand())]

    written(tmp_path, contents())
    wanted = draw()
    draw()
    keeper(tmp_path).restore(contents(), ALONE)
    assert draw() == wanted


def test_buffers_that_a_model_does_not_store_stay_out(alone, tmp_path):
    model = nn.Linear(2, 3)
    model.register_buffer("mask", torch.ones(2), persistent=False)
    written(tmp_path, contents(model=model))
    assert {entry.name.split("/")[0] for entry in files.verify(files.paths(tmp_path)[0]).entries} == {"model", "state"}


OTHERS = {
    "not kept any more": ([("a", Counting())], [], r"has the state of \['a'\], which is kept no longer"),
    "not in it": ([], [("a", Counting())], r"the checkpoint of iteration 7 has no state of \['a'\]; it has \[\]"),
    "renamed": ([("a", Counting())], [("b", Counting())], r"has no state of \['b'\]; it has \['a'\]"),
}


@pytest.mark.parametrize(("then", "now", "words"), OTHERS.values(), ids=OTHERS)
def test_other_names_than_in_the_checkpoint_are_an_error_that_names_them(alone, tmp_path, then, now, words):
    written(tmp_path, contents(then))
    with pytest.raises(ValueError, match=words):
        keeper(tmp_path).restore(contents(now), ALONE)


def test_another_buffer_or_group_than_in_the_checkpoint_is_named(alone, tmp_path):
    plain = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, track_running_stats=False))
    written(tmp_path / "plain", contents(model=plain))
    with pytest.raises(ValueError, match=r"the checkpoint lacks buffers of the model: 1\.num_batches_tracked"):
        keeper(tmp_path / "plain").restore(contents(), ALONE)
    written(tmp_path / "whole", contents())
    with pytest.raises(ValueError, match=r"the checkpoint holds buffer/1\.running_mean, the model has no such buffer"):
        keeper(tmp_path / "whole").restore(contents(model=plain), ALONE)
    parted = contents()
    first, *rest = parted.model.parameters()
    parted = dataclasses.replace(parted, optimizer=torch.optim.SGD([{"params": [first]}, {"params": rest}], lr=0.1))
    with pytest.raises(ValueError, match="optimizer: 1 parameter groups in the checkpoint, 2 in this optimizer"):
        keeper(tmp_path / "whole").restore(parted, ALONE)


def test_a_checkpoint_of_an_earlier_version_is_read_and_what_it_lacks_is_told(alone, tmp_path, capsys):
    before = stepped(contents())
    written(tmp_path, before)
    (path,) = files.paths(tmp_path)
    session = {"injections": {}}
    as_version_1(path, session, BEFORE_STATES)
    after = contents([("mine", Counting(fresh=True))])
    assert keeper(tmp_path).restore(after, ALONE) == (7, session)
    assert torch.equal(after.model[0].weight, before.model[0].weight)
    assert "written by an earlier version" in capsys.readouterr().out


def test_what_cannot_be_stored_is_refused_by_name_and_nothing_is_written(alone, tmp_path):
    with pytest.raises(ValueError, match=r"^session\.keep\('mine'\): state_dict\(\)\['a'\] is of type builtins\.set: "):
        written(tmp_path, contents([("mine", Counting(a={1}))]))
    assert files.paths(tmp_path) == []


def test_a_state_that_could_not_be_read_again_is_refused_by_name(alone, tmp_path):
    words = r"^session\.keep\('order'\): state_dict\(\) has \d+ bytes beside its tensors, at most 4194304 can be read"
    with pytest.raises(ValueError, match=words):
        written(tmp_path, contents([("order", Counting(order=[0.123456789] * 500_000))]))
    held = contents([("order", state := Counting(order=[*range(2_000_000)]))])
    written(tmp_path, held)
    state.state = {}
    keeper(tmp_path).restore(held, ALONE)
    assert state.state == {"order": [*range(2_000_000)]}


def gathered(held):
    """Return the facts and the tensors of a checkpoint."""
    tensors = []
    facts = held.gather(held.collect(ALONE), ALONE, lambda name, tensor: tensors.append((name, tensor.clone())))
    return facts, tensors


def test_states_that_differed_by_rank_are_rank_0s_on_another_number_of_ranks(alone):
    facts, tensors = gathered(contents([("mine", Counting(a=0))]))
    other = {"dict": [["a", 1]]}
    facts["states"]["kept/mine"]["1"] = other
    for ranks, said in ((1, []), (2, ["mine: unlike on its 2 ranks; all continue with rank 0's"])):
        state = Counting()
        held = contents([("mine", state)])
        assert held.scatter(3, facts | {"ranks": ranks}, ALONE, Storage(0, None, 60).reader(iter(tensors))) == said
        assert state.state == {"a": 0}


@pytest.mark.parametrize("body", [{"tensor": 5}, {"tensor": 0, "dict": []}, {"dict": [[1]]}, {"other": 1}], ids=str)
def test_a_malformed_state_is_named(alone, body):
    facts, tensors = gathered(contents([("mine", Counting())]))
    facts["states"]["kept/mine"]["0"] = body
    with pytest.raises(ValueError, match="the checkpoint's state of kept/mine is malformed"):
        contents([("mine", Counting())]).scatter(3, facts, ALONE, Storage(0, None, 60).reader(iter(tensors)))


def test_states_that_are_not_finite_are_refused_and_said_once_until_they_are_finite(alone, tmp_path):
    mine, held = keeper(tmp_path, keep=1), contents()
    weight, said = held.model[0].weight.data, []
    whole = weight.clone()
    for iteration, broken in enumerate([False, True, True, False, True], 1):
        weight.copy_(whole * (float("nan") if broken else 1.0))
        try:
            mine.save(iteration, held, ALONE)
            said.append("written")
        except NotFiniteError as error:
            said.append(error.again)
    assert said == ["written", False, True, "written", False]
    assert [path.name for path in files.paths(tmp_path)] == ["step-000000004"]
