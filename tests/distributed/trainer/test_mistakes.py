"""Ordinary mistakes in a script of one's own: none of them passes in silence, and each is named on one line."""

import sys

import pytest
from support.launched import spec
from support.places import RANK_SCRIPTS

SCRIPT = RANK_SCRIPTS / "own_loop.py"
UNLIKE = [{"name": "fast", "relativeSpeed": 1}, {"name": "slow", "relativeSpeed": 0.5}]


@pytest.fixture
def loop(launch):
    def run(mistake, *arguments, ranks=2, groups=None, **fields):
        body = {**spec(ranks, groups), **fields}
        del body["training"]
        return launch(body, command=[sys.executable, str(SCRIPT), mistake, *map(str, arguments)])

    return run


def test_without_a_mistake_it_trains(loop):
    run = loop("none")
    assert run.wait() == 0, run.text()
    assert run.read("report.json")["iterations"] == 6


@pytest.mark.parametrize(
    ("mistake", "code", "words"),
    [
        ("no shard", 2, "session: call session.shard() first (SCRIPT"),
        ("no watch", 2, "session: call session.watch(model, optimizer) first (SCRIPT"),
        ("no boundary", 2, "session.finish: no iteration has ended: call session.boundary(iteration) after each one"),
        ("no finish", 2, "the script returned without session.finish(): the last checkpoint and the report are"),
        ("no step", 2, "session.boundary: the optimizer made no step in this iteration: call session.step()"),
        ("own optimizer step", 2, "optimizer.step() was called by the script: call session.step(), which calls it"),
        ("exit", 2, "the script exited before session.finish(): the other ranks wait for this one (SCRIPT"),
        ("equal names", 2, "layer 'attention.fc1': another layer has this name"),
        ("two sizes", 2, "layer 'more.fc1': 64 hidden units, but layer 'mlp.fc1' has 32"),
        ("a seed per rank", 2, "session.watch: replicated tensors differ: embed.weight of rank 1 from rank 0's, "),
        ("no seed", 2, "session.watch: replicated tensors differ: embed.weight of rank 1 from rank 0's, "),
        ("samples per rank", 1, "the batch of ranks [1] differs from rank 0's: every rank trains on the same batches"),
        ("torch's clipping", 2, "clip_grad_norm_: it sees only the units of this rank, so that every rank would"),
        ("dropout", 2, "model: dropout: Dropout(p=0.1): ranks draw unlike masks"),
        ("dropping attention", 2, "model: mixer: MultiheadAttention(p=0.1): ranks draw unlike masks"),
        (
            "functional dropout",
            2,
            "model: Model draws random numbers in training (a dropout?): ranks draw unlike masks",
        ),
        ("a loss that is not finite", 78, "iteration 4: the loss or the norm of the gradients is not finite (nan)"),
    ],
)
def test_a_mistake_is_named_on_one_line(loop, mistake, code, words):
    run = loop(mistake)
    assert run.wait() == code, run.text()
    assert words.replace("SCRIPT", str(SCRIPT)) in run.text()
    assert "Traceback" not in run.text()


def test_an_error_of_the_script_keeps_its_traceback_and_place(loop):
    run = loop("an error of its own")
    assert run.wait() == 1, run.text()
    assert 'int("three")' in run.text() and "Traceback" in run.text()
    status = run.read("status.json")
    assert status["state"] == "failed"
    assert f"{SCRIPT}:" in status["message"] and "in forward" in status["message"]


def test_labels_that_differ_are_found_by_the_weights_that_they_make(loop):
    run = loop("labels per rank", 101)
    assert run.wait() == 1, run.text()
    assert "iteration 100: replicated tensors differ: embed.weight of rank 1 from rank 0's" in run.text()


def test_a_shuffled_loader_gives_all_ranks_the_same_batches_on_unlike_ranks_too(loop):
    """The first decisions calibrate costs, which no rank may do with torch's own generator."""
    run = loop("none", 60, groups=UNLIKE)
    assert run.wait() == 0, run.text()
    assert (run.workdir / "cost_calibration.json").exists()
