"""What the trainer of vision transformers gained: options that all built-in trainers share."""

import pytest
from support.balancing_gang import write_control
from support.launched import Launched, spec

OPTIONS = {
    "iterations": 8,
    "batchSize": 64,
    "evaluateEvery": 3,
    "labelSmoothing": 0.1,
    "augmentation": ["crop", "flip"],
    "schedule": "warmup-stable-decay",
    "learningRateFloor": 0.0001,
    "decayIterations": 2,
    "parameterGroups": [{"names": "head_*", "learningRateFactor": 0.5}],
    "keepBest": True,
}


def trained(folder, ranks):
    write_control(folder, 1, "None")
    run = Launched(folder, spec(ranks, **OPTIONS))
    assert run.wait() == 0, run.text()
    return run


def test_two_ranks_learn_what_one_learns(tmp_path):
    one, two = trained(tmp_path / "one", 1), trained(tmp_path / "two", 2)
    losses = [[line["loss"] for line in run.history()] for run in (one, two)]
    assert len(losses[0]) == 8 and losses[1] == pytest.approx(losses[0], rel=1e-5)
    evaluated = [line for line in two.text().splitlines() if ": test loss " in line]
    assert [line.split("iteration ")[1].split(":")[0] for line in evaluated] == ["3", "6", "8"]
    assert all(", accuracy 0." in line and "perplexity" not in line for line in evaluated)
    assert (tmp_path / "two" / "checkpoints" / "best" / "manifest.json").exists()
    report = two.read("report.json")
    assert (report["testPerplexity"], report["sample"]) == (None, "")


def test_a_pattern_that_matches_nothing_ends_with_one_line(launch):
    run = launch(spec(1, iterations=2, parameterGroups=[{"names": "heads.*"}]))
    assert run.wait() == 2, run.text()
    assert "spec.training.parameterGroups[0].names: 'heads.*' matches no parameter" in run.text()
