"""A gated FFN and grouped heads on the library's unit specs learn the same on one rank and on unequal ones."""

import sys

import pytest
from heterotp_trainer.plans.unit_plan import UnitPlan
from support.launched import Launched
from support.places import RANK_SCRIPTS

TRAIN = [sys.executable, str(RANK_SCRIPTS / "gated_grouped.py")]
ALONE = {"tensorParallelDegree": 1, "workerGroups": [{"name": "one", "relativeSpeed": 1}]}


def unequal(slow):
    def group(name, speed, ranks):
        device = {"type": "emulated", "teraflops": 0.01 * speed}
        return {"name": name, "processesPerPod": ranks, "relativeSpeed": speed, "device": device}

    return {"tensorParallelDegree": 3, "workerGroups": [group("fast", 1.0, 2), group("slow", slow, 1)]}


def train(folder, spec):
    run = Launched(folder, spec, command=TRAIN)
    assert run.wait() == 0, run.text()
    return {line["iteration"]: line["loss"] for line in run.history() if line["loss"]}, run.read("report.json")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    losses, _ = train(tmp_path_factory.mktemp("alone"), ALONE)
    return losses


@pytest.mark.parametrize(("slow", "groups"), [(0.4, 1), (0.05, 0)], ids=["slow rank", "rank without any group"])
def test_unequal_ranks_learn_what_one_rank_learns(slow, groups, alone, tmp_path):
    """Without a group, a rank leaves key and value out of the graph; later it gets groups, with all their state."""
    assert UnitPlan.from_speeds([1.0, 1.0, slow], 6, 192).counts("heads")[2] == groups
    losses, report = train(tmp_path, unequal(slow))
    assert report["iterations"] == max(losses) == 100
    assert report["testAccuracy"] > 0.75
    for iteration in range(1, 21):  # afterwards fp32 rounding has grown
        assert losses[iteration] == pytest.approx(alone[iteration], rel=1e-3)
