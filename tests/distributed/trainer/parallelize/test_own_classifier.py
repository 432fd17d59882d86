"""A plain model with BatchNorm and dropout, and a shuffled DataLoader, on unequal ranks: as on one rank."""

import sys

import pytest
import torch
from safetensors.torch import load_file
from support.balancing_gang import write_control
from support.launched import Launched
from support.places import RANK_SCRIPTS

LENGTH = 24  # iterations: six epochs
SPEEDS = {"alone": (1.0,), "unequal": (1.0, 0.5, 0.1), "moved": (1.0, 0.5, 0.1)}


def spec(speeds):
    groups = [
        {"name": f"g{rank}", "relativeSpeed": speed, "device": {"type": "emulated", "teraflops": 0.001 * speed}}
        for rank, speed in enumerate(speeds)
    ]
    return {"tensorParallelDegree": len(speeds), "workerGroups": groups}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Losses by iteration, report and stored tensors of each run."""
    found = {}
    for name, speeds in SPEEDS.items():
        folder = tmp_path_factory.mktemp(name)
        policy = {"window": 3, "reshard": {"evict": [0]}} if name == "moved" else {}
        write_control(folder, 1, "RESHARD" if policy else "None", **policy)
        run = Launched(
            folder, spec(speeds), command=[sys.executable, str(RANK_SCRIPTS / "own_classifier.py"), str(LENGTH)]
        )
        assert run.wait() == 0, run.text()
        losses = {line["iteration"]: line["loss"] for line in run.history()}
        found[name] = losses, run.read("report.json"), load_file(folder / "exported" / "model.safetensors")
    return found


@pytest.mark.parametrize("name", ["unequal", "moved"])
def test_losses_and_running_statistics_are_those_of_one_rank(runs, name):
    (losses, report, stored), (wanted, _, alone) = runs[name], runs["alone"]
    assert len(wanted) == LENGTH and wanted[LENGTH] < 0.8 * wanted[1]  # it learns
    assert losses == pytest.approx(wanted, rel=1e-4)
    assert stored.keys() == alone.keys() and stored["norm.num_batches_tracked"] == LENGTH
    for buffer in ("norm.running_mean", "norm.running_var"):
        assert torch.allclose(stored[buffer], alone[buffer], rtol=1e-3, atol=1e-5), buffer
    shares = [rank["share"] for rank in report["ranks"]]
    assert shares[0] == 0 and report["moves"] if name == "moved" else shares[0] > shares[1] > shares[2]
