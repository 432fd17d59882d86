"""Ranks that were killed are started again and let in, and training goes on as if they had not been lost."""

import os
import signal
import sys

import pytest
from heterotp_api.names import Env
from support.elastic import DYING, elastic, losses, same, without_moves
from support.language_jobs import language, write_text
from support.launched import Launched

SECRET = {Env.RENDEZVOUS_SECRET: "a secret of thirty-two characters"}
ITERATIONS = 24
PRECISE = 1e-5  # relative, of losses


def gang(**options):
    """Return the spec of three ranks, one of which is killed in iteration 6 and waited for in iteration 12."""
    return elastic(3, **{"rejoin": True, "iterations": ITERATIONS, "evaluateEvery": 7, **options})


@pytest.fixture
def dying(launch):
    """A function that starts a gang whose ranks die at these points."""

    def start(body, *points):
        without_moves(launch.workdir)
        return launch(body, command=[sys.executable, DYING, *points], **SECRET)

    return start


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The losses of a run that loses no rank, and that does not ask for elasticity."""
    body = gang()
    del body["runPolicy"]
    run = Launched(tmp_path_factory.mktemp("unbroken"), body)
    assert run.wait() == 0, run.text()
    return losses(run)


@pytest.mark.parametrize(("killed", "leader"), [(1, 0), (0, 1)])
def test_a_rank_that_was_killed_comes_back_and_the_losses_are_those_of_an_unbroken_run(dying, unbroken, killed, leader):
    run = dying(gang(), f"norm:{killed}:6", f"await:{leader}:12")
    assert run.wait() == 0, run.text()
    assert f"rank {killed} is back: 3 ranks go on" in run.text()
    assert f"2/3 ranks live, rank {killed} left at iteration 5 (" in run.text()
    shown = run.read("status.json")["gang"]
    assert (shown["started"], shown["live"], shown["lost"], shown["comebacks"]) == (3, 3, [], 1)
    if killed != 0:  # a leader that is killed may lose the last seconds of its journal
        assert min(each["iteration"] for each in run.read("report.json")["shares"]) == 1
    same(run, unbroken, PRECISE)


@pytest.mark.parametrize(
    "point",
    [
        "knocked:1:1:1",
        "connected:1:1:1",
        "entered:1:1:1",
        "state:1:3:1",
        "sharing:1:1:1",
        "moved:1:1:1",
        "back:1:1:1",
        "connected:2:1",
        "entered:0:1",
        "giving:0:3",
        "sharing:2:1",
        "moved:2:3",
        "back:2:2",
    ],
)
def test_a_death_while_a_rank_comes_back_is_survived(dying, unbroken, point):
    run = dying(gang(), "norm:1:6", "await:0:12", point)
    assert run.wait() == 0, run.text()
    name, rank, *_ = point.split(":")
    assert f"[rank {rank}] dies at {name}\n" in run.text()
    assert "rank 1 is started again" in run.text()
    same(run, unbroken, PRECISE)


def test_a_model_of_language_on_unequal_ranks_goes_on_as_if_unbroken(launch):
    """Vocabulary rows, accumulation, recomputation, shares by speed, and a strategy that moves units."""
    data, settings = write_text(launch.workdir / "text"), {"accumulate": 2, "recompute": True, "evaluateEvery": 5}
    body = language(data, {"preset": "llama-tiny"}, device={"type": "cpu"}, **settings)
    whole = launch.in_folder("whole", body)
    assert whole.wait() == 0, whole.text()
    body["runPolicy"] = {"elastic": {"minRanks": 1, "silentAfterSeconds": 60}}
    run = launch(body, command=[sys.executable, DYING, "norm:1:3", "await:0:6"], **SECRET)
    assert run.wait() == 0, run.text()
    assert "rank 1 is back" in run.text()
    within = 1e-4  # AdamW on a language: each step makes a difference of rounding up to twice as large
    assert losses(run) == pytest.approx(losses(whole), rel=within)
    assert run.read("report.json")["testLoss"] == pytest.approx(whole.read("report.json")["testLoss"], rel=within)


def test_masters_of_bf16_come_back_whole(dying, unbroken):
    run = dying(gang(precision="bf16", accumulate=2, keepBest=True, patience=50), "norm:1:6", "await:0:12")
    assert run.wait() == 0, run.text()
    assert "rank 1 is back" in run.text()
    assert losses(run) == pytest.approx(unbroken, rel=0.02)


@pytest.mark.parametrize(("rejoin", "environment"), [(True, {}), (False, SECRET)], ids=["no secret", "no rejoin"])
def test_without_rejoin_or_without_a_secret_nobody_comes_back(launch, unbroken, rejoin, environment):
    without_moves(launch.workdir)
    run = launch(gang(rejoin=rejoin), command=[sys.executable, DYING, "norm:1:6"], **environment)
    assert run.wait() == 0, run.text()
    assert "is back" not in run.text()
    shown = run.read("status.json")["gang"]
    assert (shown["live"], shown["members"], [each["rank"] for each in shown["lost"]]) == (2, [0, 2], [1])
    same(run, unbroken, PRECISE)


@pytest.mark.parametrize("asked", [1, 0])
def test_a_rank_that_is_asked_alone_leaves_and_the_others_go_on(launch, asked):
    without_moves(launch.workdir)
    run = launch(elastic(3, rejoin=True, iterations=100000, epochs=None), **SECRET)
    run.reach(5)
    os.kill(run.ranks()[asked], signal.SIGTERM)
    run.until("it has left", lambda: f"2/3 ranks live, rank {asked} left" in run.text())
    run.reach(max(losses(run)) + 5)
    assert f"[rank {asked}] error: rank {asked} was asked to leave" in run.text()
    assert "(was asked to leave)" in run.text() and "is started again" not in run.text()
    assert run.read("status.json")["state"] == "running"
    for rank in run.ranks():
        os.kill(rank, signal.SIGTERM)
    assert run.wait() == 143, run.text()
    assert sorted(losses(run)) == list(range(1, max(losses(run)) + 1))
