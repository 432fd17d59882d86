"""Ordinary mistakes in a script of one's own: none of them passes in silence, and each is named on one line."""

import re
import sys

import pytest
from support.balancing_gang import write_control
from support.launched import spec
from support.mistakes import SCRIPT, documented, made

# tested below, in test_stalls.py and in test_stalled_run.py
HANGS = {
    "a rank hangs",
    "a rank hangs after backward",
    "a rank hangs at the start",
    "a rank hangs with the interpreter",
    "all ranks hang",
}
OTHERS = {"an error of its own", "functional dropout that begins later", *HANGS}
RESTARTED = {"no restore"}  # found where a run before left a checkpoint
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


@pytest.mark.parametrize("mistake", documented(), ids=lambda mistake: mistake.name)
def test_a_mistake_is_named_on_one_line_as_the_page_lists_it(loop, mistake):
    if mistake.name in RESTARTED:
        assert loop("none").wait() == 0
    run = loop(mistake.name)
    assert run.wait() == mistake.exit_code, run.text()
    assert mistake.is_told_by(run.text()), run.text()
    assert not re.search(r"Traceback|\[c10d\]", run.text()), run.text()


SHORT = [
    ("a shared parameter between the linears", (60,), "iteration 60: replicated tensors differ: "),
    ("labels per rank", (1,), "the loss of ranks [1] differs"),
    ("labels per rank", (1, "late"), "the loss of ranks [1] differs"),
    ("samples per rank", (1,), "the batch of ranks [1] differs"),
    ("samples per rank", (1, "late"), "the batch of ranks [1] differs"),
]


@pytest.mark.parametrize(("mistake", "arguments", "words"), SHORT, ids=str)
def test_the_last_iterations_of_a_short_run_are_compared_before_its_checkpoint(loop, mistake, arguments, words):
    run = loop(mistake, *arguments, checkpoint={})
    assert run.wait() == 1, run.text()
    assert words in run.text()
    assert not list(run.workdir.glob("checkpoints/step-*"))


AVERAGED = {  # by the tensor whose gradients differ
    "labels per rank": "embed.weight",
    "samples per rank": "embed.weight",
    "a shared parameter between the linears": "scale",
}


@pytest.mark.parametrize(("mistake", "tensor"), AVERAGED.items(), ids=AVERAGED)
def test_a_mistake_on_unlike_devices_is_found_although_gradients_are_averaged(loop, mistake, tensor):
    run = loop(mistake, 6, "unlike")
    assert run.wait() == 1, run.text()
    found = f"error: iteration 1: gradients of replicated tensors differ: {tensor} of ranks 0 and 1 from the mean"
    assert found in run.text()


def test_gradients_of_unlike_devices_are_alike_within_the_bound(loop):
    run = loop("none", 101, "unlike", groups=UNLIKE)
    assert run.wait() == 0, run.text()


def test_a_boundary_that_is_missing_after_a_restart_is_found_too(loop):
    assert loop("none").wait() == 0
    run = loop("no boundary", 12)
    assert run.wait() == 2, run.text()
    assert "session.finish: no iteration has ended: call session.boundary(iteration)" in run.text()


@pytest.mark.parametrize("mistake", ["no shard", "exit on one rank"])
def test_a_mistake_is_named_with_its_place_in_the_script(loop, mistake):
    run = loop(mistake)
    assert run.wait() == 2, run.text()
    assert re.search(rf"^\[rank 1\] error: .* \({SCRIPT}:\d+ in \w+\)$", run.text(), flags=re.MULTILINE), run.text()


def test_dropout_between_the_linears_that_begins_later_is_found_beside_dropout_of_whole_activations(launch, loop):
    """With equal shares all ranks draw as many numbers, so that their generators do not differ."""
    write_control(launch.workdir, 1, "None")
    run = loop("functional dropout that begins later", 102)
    assert run.wait() == 2, run.text()
    assert "model: random numbers are drawn in training between mlp.fc1 and mlp.fc2 (a dropout?)" in run.text()


def test_the_page_lists_every_mistake_that_the_script_makes():
    assert {mistake.name for mistake in documented()} == made() - OTHERS


def test_an_error_of_the_script_keeps_its_traceback_and_place(loop):
    run = loop("an error of its own")
    assert run.wait() == 1, run.text()
    assert 'int("three")' in run.text() and "Traceback" in run.text()
    status = run.read("status.json")
    assert status["state"] == "failed"
    assert f"{SCRIPT}:" in status["message"] and "in forward" in status["message"]


def test_a_shuffled_loader_gives_all_ranks_the_same_batches_on_unlike_ranks_too(loop):
    """The first decisions calibrate costs, which no rank may do with torch's own generator."""
    run = loop("none", 60, groups=UNLIKE)
    assert run.wait() == 0, run.text()
    assert (run.workdir / "cost_calibration.json").exists()
