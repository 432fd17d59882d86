"""`heterotp export`: which checkpoint it writes, and what it refuses with one line."""

import sys

import pytest
import torch
from heterotp_cli.main import main
from heterotp_trainer.checkpoint import claims, files
from heterotp_trainer.checkpoint.claims import Claim
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.parallelize.export import model_facts
from heterotp_trainer.parallelize.model import parallelize
from heterotp_trainer.parallelize.pretrained import initialize
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from safetensors.torch import load_file
from support.ranks.plain_decoder import PLAN, SIZES, Decoder


class Alone:
    """A session of one rank."""

    def shard(self):
        return TPContext(None, 0, 1, Device(torch.device("cpu"), "cpu"), NullClock(), UnitPlan.empty(1))


def model(seed):
    with torch.device("meta"):
        made = Decoder()
    return initialize(parallelize(made, Alone(), plan=PLAN, **SIZES), seed)


def write(root, iteration, facts=None):
    """Write the checkpoint of an iteration, which is also the seed of its weights."""
    made, owned = model(iteration), claims.take(root, Claim.of("mine", 1))[0]
    writer = files.Writer(owned, iteration)
    for name, parameter in made.named_parameters():
        writer.add(f"model/{name}", parameter)
        writer.add(f"optimizer/{name}/exp_avg", torch.ones_like(parameter))
    return writer.commit(5, model_facts(made) if facts is None else facts)


@pytest.fixture
def run(tmp_path):
    """A run directory with two checkpoints."""
    for iteration in (3, 12):
        write(tmp_path / "run" / "checkpoints", iteration)
    return tmp_path / "run"


@pytest.fixture
def call(monkeypatch, capsys):
    """A function that calls the command, and returns exit code, output and the lines of errors."""

    def export(*arguments):
        monkeypatch.setattr(sys, "argv", ["heterotp", "export", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err.splitlines()

    return export


CHOICES = {"": 12, "checkpoints": 12, "checkpoints/step-000000003": 3}


@pytest.mark.parametrize("path", CHOICES)
def test_the_newest_checkpoint_or_the_named_one_is_written(run, call, tmp_path, path):
    (to := tmp_path / "new").mkdir()  # an empty directory is as good as none
    assert call(run / path, "--to", to) == (0, f"{to}: the model of iteration {CHOICES[path]}\n", [])
    found, wanted = load_file(to / "model.safetensors"), dict(model(CHOICES[path]).named_parameters())
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], parameter) for name, parameter in wanted.items())


def tear(run):
    for path in (run / "checkpoints").glob("step-*"):
        (path / "model-00001.safetensors").write_bytes(b"torn")


def plain(run):
    write(run / "checkpoints", 20, facts={})


RUNS = {
    "of other models": (plain, "step-000000020: its model was not made by heterotp.parallelize"),
    "torn": (tear, "no checkpoint is whole; remove them to start anew: "),
}


@pytest.mark.parametrize("what", RUNS)
def test_checkpoints_that_cannot_be_exported_are_named(run, call, tmp_path, what):
    change, message = RUNS[what]
    change(run)
    code, out, (line,) = call(run, "--to", tmp_path / "new")
    assert (code, out) == (2, "") and message in line
    assert not (tmp_path / "new").exists()


def test_a_run_without_checkpoints_and_a_path_that_is_none_are_named(call, tmp_path):
    (empty := tmp_path / "run").mkdir()
    assert call(empty, "--to", tmp_path / "new") == (2, "", [f"{empty}: it holds no checkpoint"])
    (empty / "checkpoints").mkdir()
    assert call(empty, "--to", tmp_path / "new") == (2, "", [f"{empty}: it holds no checkpoint"])
    help_ = "(see heterotp export --help)"
    absent = f"heterotp export: invalid value for 'RUN_DIR': Directory '{tmp_path}/absent' does not exist {help_}"
    assert call(tmp_path / "absent", "--to", tmp_path / "new") == (2, "", [absent])
    assert call(empty) == (2, "", [f"heterotp export: missing option '--to' {help_}"])
    assert not (tmp_path / "new").exists()


def test_a_target_that_holds_something_stays_as_it_is(run, call, tmp_path):
    (to := tmp_path / "old").mkdir()
    (to / "notes.txt").write_text("mine")
    assert call(run, "--to", to) == (2, "", [f"{to}: it is not empty: name a new directory"])
    file = to / "notes.txt"
    assert call(run, "--to", file) == (2, "", [f"{file}: it is a file: name a new directory"])
    below = file / "new"
    assert call(run, "--to", below) == (2, "", [f"{below}: it cannot be written: Not a directory"])
    assert [path.name for path in to.iterdir()] == ["notes.txt"] and file.read_text() == "mine"
