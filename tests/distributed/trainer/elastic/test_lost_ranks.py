"""Ranks are killed or stopped, and training goes on as if they had not been: or it ends, never hangs, never errs."""

import os
import signal
import sys

import pytest
from support.elastic import DYING, ITERATIONS, elastic, losses, same, without_moves
from support.launched import Launched


@pytest.fixture
def dying(launch):
    """A function that starts a gang whose ranks die at these points."""

    def start(body, *points):
        without_moves(launch.workdir)
        return launch(body, command=[sys.executable, DYING, *points])

    return start


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The losses of a run that loses no rank, and that does not ask for elasticity."""
    body = elastic(3)
    del body["runPolicy"]
    run = Launched(tmp_path_factory.mktemp("unbroken"), body)
    assert run.wait() == 0, run.text()
    return losses(run)


def test_without_a_loss_mirrors_change_nothing(launch, unbroken):
    run = launch(elastic(3))
    assert run.wait() == 0, run.text()
    same(run, unbroken)


@pytest.mark.parametrize(
    ("points", "lost"),
    [
        (["gradients:1:20"], "rank 1"),
        (["norm:0:20"], "rank 0"),
        (["committed:2:20"], "rank 2"),
        (["committed:2:20", "late:1:20"], "rank 2"),
        (["committed:0:20", "late:1:20"], "rank 0"),
        (["updated:1:20"], "rank 1"),
        (["boundary:0:20"], "rank 0"),
        (["save:0:1"], "rank 0"),
        (["evaluation:1:2"], "rank 1"),
        (["boundary:0:12", "boundary:2:20"], "rank 2"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_rank_that_dies_anywhere_in_an_iteration_leaves_the_losses_as_they_are(dying, unbroken, points, lost):
    run = dying(elastic(3), *points)
    assert run.wait() == 0, run.text()
    assert f"{lost} lost:" in run.text()
    same(run, unbroken)


def test_two_ranks_that_do_not_mirror_each_other_may_die_at_once(dying):
    run = dying(elastic(4), "norm:0:20", "norm:2:20")
    assert run.wait() == 0, run.text()
    assert "ranks 0 and 2 lost: 2 ranks go on" in run.text() or "rank 2 lost: 2 ranks go on" in run.text()
    assert sorted(losses(run)) == list(range(1, ITERATIONS + 1))


@pytest.mark.parametrize(
    ("points", "least", "words"),
    [
        (["norm:1:20", "norm:2:20"], 1, "lost together"),
        (["norm:1:20"], 4, "spec.runPolicy.elastic.minRanks is 4"),
        (["norm:1:20", "takeover:3:1"], 1, "a rank was lost while units were taken over"),
        (["refresh:1:1"], 1, "rank 1 was not mirrored yet"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_survived_ends_the_gang(dying, points, least, words):
    run = dying(elastic(4, least), *points)
    assert run.wait() not in (0, None), run.text()
    assert words in run.text()


def test_a_stopped_rank_is_lost_and_does_not_go_on_when_it_runs_again(launch):
    without_moves(launch.workdir)
    run = launch(elastic(3, silent=3, iterations=100000, epochs=None))
    run.reach(20)
    victim = run.ranks()[1]
    os.kill(victim, signal.SIGSTOP)
    run.until("the others go on", lambda: "rank 1 lost: 2 ranks go on" in run.text())
    reached = max(losses(run))
    run.reach(reached + 5)
    os.kill(victim, signal.SIGCONT)
    run.until("it ends by itself", lambda: "[rank 1] error: a peer died or hangs" in run.text())
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.wait() == 143, run.text()
