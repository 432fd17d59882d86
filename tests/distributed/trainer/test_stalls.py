"""A gang that hangs says so within seconds, names the rank that the others wait for, and can be ended."""

import os
import signal
import sys
import time

import pytest
from heterotp_api.names import EXIT_NO_PROGRESS, EXIT_STOPPED
from support.launched import spec
from support.patience import COMPUTING_SECONDS
from support.places import RANK_SCRIPTS

SCRIPT = RANK_SCRIPTS / "own_loop.py"


@pytest.fixture
def hanging(launch):
    def run(mistake="a rank hangs", **fields):
        body = {**spec(3), **fields}
        del body["training"]
        return launch(body, command=[sys.executable, str(SCRIPT), mistake])

    return run


def stall(run):
    """Return the status once it shows a stall."""
    deadline = time.monotonic() + COMPUTING_SECONDS
    while time.monotonic() < deadline:
        status = run.read("status.json") if (run.workdir / "status.json").exists() else {}
        if status.get("stall"):
            return status
        time.sleep(0.1)
    raise AssertionError(f"no stall is shown: {run.text()}")


def test_a_stall_is_shown_while_it_lasts_and_a_stop_ends_it(hanging):
    run = hanging()
    status = stall(run)
    assert status["stalledBy"] == [1] and status["iteration"] == 3
    assert "rank 1 is still computing (fixed, since " in status["stall"]
    assert status["stall"].endswith("the others wait for the sum of attention.proj")
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.wait() == EXIT_STOPPED, run.text()
    assert "stopped without a last checkpoint: no iteration for " in run.text()
    last = run.read("status.json")
    assert last["state"] == "stopping"
    assert "no iteration for " in last["message"] and not last.get("stall")  # the sentence is there once


def test_a_rank_that_hangs_before_the_first_iteration_ends_is_named(hanging):
    status = stall(hanging("a rank hangs at the start"))
    assert (status["stalledBy"], status["iteration"]) == ([1], 0)
    assert status["stall"].endswith("the others wait for the sum of attention.proj")


def test_a_rank_that_hangs_after_its_backward_pass_is_named(hanging):
    run = hanging("a rank hangs after backward")
    status = stall(run)
    assert status["stalledBy"] == [1]
    assert status["stall"].endswith("the others wait for the norm of the gradients")


def test_a_silent_rank_is_named(hanging):
    run = hanging()
    run.reach(2)
    os.kill(run.ranks()[2], signal.SIGSTOP)
    try:
        deadline = time.monotonic() + COMPUTING_SECONDS
        while (status := stall(run))["stalledBy"] != [2]:
            assert time.monotonic() < deadline, status
            time.sleep(0.1)
        assert "rank 2 has sent no heartbeat" in status["stall"]  # it may stand still before its first one
    finally:
        os.kill(run.ranks()[2], signal.SIGCONT)


def test_past_the_deadline_all_stacks_are_written_and_the_rank_that_did_not_arrive_is_to_blame(hanging):
    run = hanging(runPolicy={"progressDeadlineSeconds": 10})
    assert run.wait() == EXIT_NO_PROGRESS, run.text()
    assert "heterotp launcher: rank 1 ended with exit code 79: error: no iteration for 1" in run.text()
    assert "rank 1 is still computing (fixed, since " in run.text()
    hung = [line for line in run.text().splitlines() if line.startswith("[rank 1]") and "own_loop.py" in line]
    assert any("in main" in line for line in hung)


def test_a_stop_ends_a_gang_with_a_frozen_rank(hanging):
    run = hanging()
    run.reach(2)
    os.kill(run.ranks()[2], signal.SIGSTOP)
    stall(run)
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.wait() == EXIT_STOPPED, run.text()
    assert "stopped without a last checkpoint: no iteration for " in run.text()
    assert "heterotp launcher: rank 2 did not end after the stop and was killed" in run.text()


def held(text):
    """Return the lines of rank 1 that show where it holds the interpreter."""
    return [line for line in text.splitlines() if line.startswith("[rank 1]") and line.endswith(" in hold_interpreter")]


def test_a_rank_that_holds_the_interpreter_shows_its_stacks_past_the_deadline(hanging):
    run = hanging("a rank hangs with the interpreter", runPolicy={"progressDeadlineSeconds": 10})
    run.wait()
    assert "rank 1 has sent no heartbeat" in run.text()  # it may stand still before its first one
    assert len(held(run.text())) == 1, run.text()


def test_a_rank_that_holds_the_interpreter_shows_its_stacks_after_a_stop(hanging):
    run = hanging("a rank hangs with the interpreter")
    stall(run)
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.wait() == EXIT_STOPPED, run.text()
    assert "heterotp launcher: rank 1 did not end after the stop and was killed" in run.text()
    assert len(held(run.text())) == 1, run.text()
