"""A Llama of transformers, made on the meta device, on unequal ranks: it trains as one rank does."""

import json
import sys

import pytest
import torch
from heterotp_trainer.parallelize.export import export
from safetensors.torch import load_file
from support.balancing_gang import write_control
from support.launched import Launched
from support.places import RANK_SCRIPTS

SCRIPT = RANK_SCRIPTS / "own_llama.py"
SPEEDS, ALONE = (1.0, 0.5, 0.1), (1.0,)
LENGTH = 20
# what happens under them does not depend on measured times: a busy machine changes nothing
POLICIES = {
    "None": {},
    "RESHARD": {"window": 3, "reshard": {"evict": [0]}},
    "MIG": {"mig": {"grain": 1, "fixedRatio": 0.5, "ranks": [0]}},
}
TOLERANCES = {"fp32": 1e-5, "bf16": 1e-2}  # of the loss
PLAIN, EVERYTHING, BF16 = ("fp32", "plain", 1), ("fp32", "recompute", 4), ("bf16", "recompute", 4)


def spec(speeds):
    groups = [
        {"name": f"g{rank}", "relativeSpeed": speed, "device": {"type": "emulated", "teraflops": 0.001 * speed}}
        for rank, speed in enumerate(speeds)
    ]
    return {"tensorParallelDegree": len(speeds), "workerGroups": groups}


def train(folder, speeds, mode, policy="None"):
    """Return the loss by iteration, and the report."""
    write_control(folder, 1, policy, **POLICIES[policy])
    command = [sys.executable, str(SCRIPT), *map(str, (*mode, LENGTH))]
    run = Launched(folder, spec(speeds), command=command)
    assert run.wait() == 0, run.text()
    assert_exported_alike(folder)
    return {line["iteration"]: line["loss"] for line in run.history()}, run.read("report.json")


def assert_exported_alike(folder):
    """What `heterotp export` makes of the last checkpoint is bit-equal to what the script wrote."""
    assert export(folder, folder / "from-checkpoint") == LENGTH
    stored = [load_file(folder / name / "model.safetensors") for name in ("exported", "from-checkpoint")]
    assert stored[0].keys() == stored[1].keys() and all(torch.equal(stored[1][n], t) for n, t in stored[0].items())
    configs = [json.loads((folder / name / "config.json").read_text()) for name in ("exported", "from-checkpoint")]
    assert {**configs[1], **configs[0]} == configs[1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a function that trains each case once."""
    done = {}

    def find(*case):
        key = json.dumps(case)
        if key not in done:
            done[key] = train(tmp_path_factory.mktemp("llama"), *case)
        return done[key]

    return find


def assert_same_losses(found, expected, tolerance):
    assert len(found) == len(expected) == LENGTH
    assert min(found.values()) < 0.5 * found[1]  # it learns
    for iteration, loss in expected.items():
        assert found[iteration] == pytest.approx(loss, rel=tolerance), iteration


@pytest.mark.parametrize("mode", [PLAIN, EVERYTHING, BF16], ids=["fp32", "fp32 recomputed", "bf16 recomputed"])
def test_unequal_ranks_have_the_loss_of_one_rank(trained, mode):
    found, report = trained(SPEEDS, mode)
    shares = [rank["share"] for rank in report["ranks"]]
    assert shares[0] > shares[1] > shares[2]
    assert_same_losses(found, trained(ALONE, PLAIN)[0], TOLERANCES[mode[0]])


@pytest.mark.parametrize("policy", ["RESHARD", "MIG"])
def test_moves_and_migrated_columns_do_not_change_the_loss(trained, policy):
    found, report = trained(SPEEDS, EVERYTHING, policy)
    rank = report["ranks"][0]
    assert report["moves"] and rank["share"] == 0 if policy == "RESHARD" else rank["migratedRatio"] > 0.3
    assert_same_losses(found, trained(ALONE, PLAIN)[0], 2e-5)
