"""Updates that are not finite, in gangs whose model has running statistics: what is left out, and what is saved."""

import re
import sys

import pytest
import torch
from heterotp_api.names import EXIT_NON_FINITE
from heterotp_trainer.checkpoint import files
from support.balancing_gang import write_control
from support.launched import spec
from support.places import RANK_SCRIPTS

RANKS, ITERATIONS = 2, 16
SAME = {"strategy": "ZERO", "zero": {"grain": 1, "fixedRatio": 0.5, "ranks": [1], "imputation": "Same"}}


@pytest.fixture
def loop(launch):
    def run(policy, first, last):
        body = spec(RANKS, checkpoint={"everyIterations": 1, "keep": 1})
        del body["training"]
        return launch(
            body, command=[sys.executable, str(RANK_SCRIPTS / "not_finite.py"), policy, str(first), str(last)]
        )

    return run


def updates(run):
    """Return by iteration whether the update was made, and what changed, of all ranks."""
    found = {}
    for iteration, made, changed in re.findall(r"UPDATE (\d+) (\w+) (\S+)", run.text()):
        found.setdefault(int(iteration), set()).add((made == "True", changed))
    return found


def saved(run):
    """Return iteration and tensors of the only checkpoint."""
    (path,) = files.paths(run.workdir / "checkpoints")
    manifest = files.verify(path)
    return manifest.iteration, dict(files.read_tensors(path, manifest))


@pytest.mark.parametrize("policy", [{}, SAME], ids=["plain", "Same"])
def test_a_skipped_update_changes_nothing_and_training_goes_on(loop, launch, policy):
    if policy:
        write_control(launch.workdir, 1, **policy)
    run = loop("Skip", 7, 9)
    assert run.wait() == 0, run.text()
    found = updates(run)
    assert sorted(found) == list(range(1, ITERATIONS + 1))
    for iteration, seen in found.items():
        skipped = 7 <= iteration <= 9
        assert {made for made, _ in seen} == {not skipped}, iteration
        assert all((changed == "nothing") == skipped for _, changed in seen), (iteration, seen)
    assert run.read("report.json")["skippedUpdates"] == 3
    assert "training goes on" not in run.text()  # every checkpoint was written
    iteration, tensors = saved(run)
    assert iteration == ITERATIONS
    assert [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())] == []
    assert int(tensors["buffer/norm.num_batches_tracked"]) == ITERATIONS - 3
    assert any(name.startswith("columns/") for name in tensors) == bool(policy)


def test_after_ten_in_a_row_the_gang_ends_and_the_checkpoint_is_of_before(loop):
    run = loop("Skip", 4, 99)
    assert run.wait() == EXIT_NON_FINITE, run.text()
    assert (
        "iteration 14: the loss or the norm of the gradients is not finite (nan), as in the 10 iterations" in run.text()
    )
    assert [n for n, seen in updates(run).items() if {made for made, _ in seen} == {False}] == list(range(4, 14))
    _, tensors = saved(run)
    assert int(tensors["buffer/norm.num_batches_tracked"]) == 3
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values() if tensor.is_floating_point())


def test_stop_ends_before_the_update(loop):
    run = loop("Stop", 4, 4)
    assert run.wait() == EXIT_NON_FINITE, run.text()
    assert re.findall(r"STOPPED (\d+) (\S+)", run.text()) == [("4", "nothing")] * RANKS
    assert "stopped before the update (onNonFinite: Stop)" in run.text()
    iteration, tensors = saved(run)
    assert iteration == 3
    assert bool(torch.isfinite(tensors["buffer/norm.running_var"]).all())
