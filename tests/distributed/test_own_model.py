"""A model and a loop of one's own, from examples/: gated FFN and grouped heads on the library's unit specs."""

import sys
from pathlib import Path

import pytest
import yaml
from launched import Launched

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-model"
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
