"""Gangs that may lose ranks: their specs, and what their runs have written."""

import json

import pytest
from heterotp_api.names import CONTROL_FILE
from support.launched import spec
from support.places import RANK_SCRIPTS

DYING = str(RANK_SCRIPTS / "dying.py")
ITERATIONS = 40
SILENT_SECONDS = 60  # a busy machine must not look like a silent rank


def elastic(ranks, least=1, silent=SILENT_SECONDS, rejoin=False, **training):
    """Return the spec of a gang that may lose ranks."""
    groups = [
        {"name": "a", "pods": 1, "processesPerPod": ranks, "relativeSpeed": 1, "device": {"type": "cpu"}},
    ]
    options = {
        "gradientClip": 1.0,
        "evaluateEvery": 10,
        "iterations": ITERATIONS,
        "collectiveTimeoutSeconds": 400,
        **training,
    }
    body = spec(ranks, groups, checkpoint={"everyIterations": 15}, **options)
    body["training"]["model"] = {"hiddenSize": 32, "depth": 2, "heads": 4, "patchSize": 4}
    body["runPolicy"] = {"elastic": {"minRanks": least, "silentAfterSeconds": silent, "rejoin": rejoin}}
    return body


def without_moves(folder):
    """Have the gang in this folder move no units by measured times: a loss during a move ends the run."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"schemaVersion": 1, "generation": 1, "balancing": {"strategy": "None"}, "injections": []}
    (folder / CONTROL_FILE).write_text(json.dumps(document))


def same(run, unbroken, within=1e-4):
    """All iterations are there, with the losses of the unbroken run but for the order of summation."""
    found = losses(run)
    assert sorted(found) == sorted(unbroken)
    assert found == pytest.approx(unbroken, rel=within)
    assert run.read("report.json")["state"] == "succeeded"
    assert list(run.workdir.glob(f"checkpoints/step-*{max(unbroken)}"))


def losses(run):
    return {line["iteration"]: line["loss"] for line in run.history()}
