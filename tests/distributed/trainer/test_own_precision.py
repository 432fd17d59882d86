"""bf16, recomputation and accumulation in an own model: a gang of unequal ranks trains as one rank does."""

import json
import sys

import pytest
from support.balancing_gang import write_control
from support.launched import Launched
from support.places import RANK_SCRIPTS

SCRIPT = RANK_SCRIPTS / "own_precision.py"
SPEEDS, ALONE = (1.0, 0.5, 0.2), (1.0,)
FULL = 0.0003  # teraflops of the fastest rank
LENGTH = 24
INJECTION = {"uid": "slow", "ranks": [0], "slowdown": 6, "start": {"iteration": 4}}
FIXED = {"grain": 1, "fixedRatio": 0.5}
POLICIES = {
    "None": {},
    "ZERO": {"zero": {**FIXED, "ranks": [1], "selection": "Rd"}},
    "ZERO, paired units": {"zero": {**FIXED, "ranks": [1], "selection": "Rd", "pairedUnits": True}},
    "MIG": {"mig": {**FIXED, "ranks": [0]}},
    "RESHARD": {"window": 3},
}
# of the loss: products in bf16 have 8 bits, and their order differs
TOLERANCES = {"fp32": 2e-5, "bf16": 1e-2}


def spec(speeds):
    groups = [
        {"name": f"g{rank}", "relativeSpeed": speed, "device": {"type": "emulated", "teraflops": FULL * speed}}
        for rank, speed in enumerate(speeds)
    ]
    return {"tensorParallelDegree": len(speeds), "workerGroups": groups}


def command(precision, recompute, micro, iterations=LENGTH):
    return [sys.executable, str(SCRIPT), precision, recompute, str(micro), str(iterations)]


def train(folder, speeds, mode, policy="None", injections=()):
    """Return the loss by iteration, and the report."""
    write_control(folder, 1, policy.partition(",")[0], injections, **POLICIES[policy])
    run = Launched(folder, spec(speeds), command=command(*mode))
    assert run.wait() == 0, run.text()
    found = {line["iteration"]: line["loss"] for line in run.history()}
    return found, run.read("report.json")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a function that trains each case once."""
    done = {}

    def find(speeds, mode, policy="None", injections=()):
        key = json.dumps([speeds, mode, policy, injections])
        if key not in done:
            done[key] = train(tmp_path_factory.mktemp("own"), speeds, mode, policy, injections)
        return done[key]

    return find


def assert_same_losses(found, expected, mode):
    assert len(found) == len(expected) == LENGTH
    assert max(found.values()) < 10 and min(found.values()) < 0.7 * found[1]  # it learns
    for iteration, loss in expected.items():
        assert found[iteration] == pytest.approx(loss, rel=TOLERANCES[mode[0]]), iteration


PLAIN, EXACT, BF16 = ("fp32", "plain", 1), ("fp32", "recompute", 4), ("bf16", "plain", 1)
EVERYTHING = ("bf16", "recompute", 4)
MODES = pytest.mark.parametrize("mode", [EXACT, EVERYTHING], ids=["fp32", "bf16"])


@pytest.mark.parametrize("mode", [EXACT, BF16, EVERYTHING], ids=str)
def test_a_gang_of_unequal_ranks_has_the_loss_of_one_rank(trained, mode):
    found, report = trained(SPEEDS, mode)
    shares = [rank["share"] for rank in report["ranks"]]
    assert shares[0] > shares[1] > shares[2]
    assert_same_losses(found, trained(ALONE, mode)[0], mode)


@pytest.mark.parametrize("mode", [EXACT, BF16, EVERYTHING], ids=str)
def test_a_mode_has_the_loss_of_the_plain_loop(trained, mode):
    assert_same_losses(trained(ALONE, mode)[0], trained(ALONE, PLAIN)[0], mode)


@MODES
def test_migrated_columns_do_not_change_the_loss(trained, mode):
    found, report = trained(SPEEDS, mode, "MIG")
    assert report["ranks"][0]["migratedRatio"] > 0.3
    assert_same_losses(found, trained(ALONE, mode)[0], mode)


@MODES
def test_units_that_move_after_an_injection_do_not_change_the_loss(trained, mode):
    found, report = trained(SPEEDS, mode, "RESHARD", [INJECTION])
    assert report["moves"] and report["moves"][0]["iteration"] < LENGTH - 5
    assert_same_losses(found, trained(ALONE, mode)[0], mode)


@pytest.mark.parametrize(
    ("policy", "mode"),
    [("ZERO", EVERYTHING), ("ZERO, paired units", EXACT), ("ZERO, paired units", EVERYTHING)],
    ids=["columns, bf16", "units, fp32", "units, bf16"],
)
def test_pruned_columns_are_the_same_in_every_mode(trained, policy, mode):
    """Pruning changes the loss: the plain loop with the same pruned columns is what must agree."""
    found, report = trained(SPEEDS, mode, policy)
    assert report["ranks"][1]["prunedRatio"] > 0.3
    assert_same_losses(found, trained(SPEEDS, PLAIN, policy)[0], mode)


def test_paired_units_of_layers_that_are_not_together_are_refused_by_name(launch):
    write_control(launch.workdir, 1, "ZERO", zero={"pairedUnits": True})
    run = launch(spec(ALONE), command=command("fp32", "apart", 1, iterations=3))
    assert run.wait() == 0, run.text()
    status = run.read("status.json")
    assert status["controlErrorGeneration"] == 1 and status["strategy"] == "AUTO"  # the default stays
    words = "zero.pairedUnits: true: the layers that share the hidden units of 'blocks.0.gate' and 'blocks.1.gate'"
    assert words in status["controlError"]
