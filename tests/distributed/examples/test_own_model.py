"""A model and a loop of one's own, from examples/: gated FFN and grouped heads on the library's unit specs."""

import os
import signal
import sys

import pytest
import yaml
from heterotp_api.names import EXIT_PEER_LOST, EXIT_STOPPED, Env
from heterotp_trainer.plans.unit_plan import UnitPlan
from support.launched import Launched
from support.places import ROOT

EXAMPLE = ROOT / "examples" / "own-model"
TRAIN = [sys.executable, str(EXAMPLE / "train.py")]
ALONE = {"tensorParallelDegree": 1, "workerGroups": [{"name": "one", "relativeSpeed": 1}]}


def train(folder, spec):
    run = Launched(folder, spec, command=TRAIN)
    assert run.wait() == 0, run.text()
    return {line["iteration"]: line["loss"] for line in run.history() if line["loss"]}, run.read("report.json")


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    return train(tmp_path_factory.mktemp("uneven"), yaml.safe_load((EXAMPLE / "job.yaml").read_text())["spec"])


def test_it_learns_on_unequal_ranks(uneven):
    losses, report = uneven
    assert report["iterations"] == max(losses) == 100
    assert report["testAccuracy"] > 0.75
    fast, _, slow = (rank["share"] for rank in report["ranks"])
    assert slow < 0.6 * fast


def test_the_plan_does_not_change_what_it_learns(uneven, tmp_path):
    losses, _ = uneven
    alone, _ = train(tmp_path, ALONE)
    for iteration in range(1, 21):  # afterwards fp32 rounding has grown
        assert losses[iteration] == pytest.approx(alone[iteration], rel=1e-3)


def job():
    return yaml.safe_load((EXAMPLE / "job.yaml").read_text())["spec"]


def test_a_rank_without_any_group_takes_part_in_every_sum(tmp_path):
    """Its code leaves the empty key and value out of the graph; later it gets groups, with all their state."""
    spec = job()
    spec["workerGroups"][1]["relativeSpeed"] = 0.05
    assert UnitPlan.from_speeds([1.0, 1.0, 0.05], 6, 192).counts("heads")[2] == 0
    losses, report = train(tmp_path / "uneven", spec)
    alone, _ = train(tmp_path / "alone", ALONE)
    assert max(losses) == 100
    assert report["testAccuracy"] > 0.75
    for iteration in range(1, 21):
        assert losses[iteration] == pytest.approx(alone[iteration], rel=1e-3)


def test_a_stopped_one_says_so_and_goes_on_later(launch):
    run = launch(job(), command=TRAIN)
    run.reach(5)
    os.kill(run.ranks()[1], signal.SIGTERM)
    assert run.wait() == EXIT_STOPPED, run.text()
    again = launch(job(), attempt=2, command=TRAIN)
    assert again.wait() == 0, again.text()
    assert again.read("status.json")["resumedFrom"] >= 5


def test_its_ranks_tell_a_victim_from_a_culprit(tmp_path):
    """Two pods, as two launchers would be on two nodes: the one whose peer is killed is a victim."""
    body = job()
    first = Launched(tmp_path, body, command=TRAIN, **{Env.PROCESSES: "2"})
    place = {
        Env.PROCESSES: "1",
        Env.FIRST_RANK: "2",
        Env.MASTER_PORT: str(first.port),
        Env.STATUS_PORT: str(first.port + 9),
    }
    second = Launched(tmp_path / "second", body, command=TRAIN, **place)
    try:
        first.reach(5)
        os.kill(second.ranks()[0], signal.SIGKILL)
        assert second.wait() == 128 + signal.SIGKILL
        assert first.wait() == EXIT_PEER_LOST, first.text()
        assert "Traceback" not in first.text()
    finally:
        first.kill()
        second.kill()
