"""A checkpoint does not depend on who wrote it: any number of ranks and any plan restores it bit by bit."""

import shutil
import sys

import pytest
from heterotp_api.names import EXIT_CHECKPOINT_OWNER, EXIT_NON_FINITE, Env
from heterotp_trainer.checkpoint import files
from support.launched import Launched, spec
from support.places import RANK_SCRIPTS

RESAVE = str(RANK_SCRIPTS / "resave.py")
SPOILED = str(RANK_SCRIPTS / "spoiled.py")
FIRST, LAST = 5, 10


def groups(*speeds):
    return [{"name": f"g{i}", "pods": 1, "relativeSpeed": speed} for i, speed in enumerate(speeds)]


def train(folder, speeds, iterations, attempt=1):
    body = spec(len(speeds), groups(*speeds), iterations=iterations, weightDecay=0.1, gradientClip=1.0)
    run = Launched(folder, body, attempt=attempt)
    assert run.wait() == 0, run.text()
    return run


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Five iterations on four unequal ranks, and their checkpoint."""
    folder = tmp_path_factory.mktemp("written")
    train(folder, (1.0, 1.0, 0.5, 0.25), FIRST)
    return folder


def losses(run):
    return {line["iteration"]: line["loss"] for line in run.history() if line["loss"] is not None}


# the model has 4 heads: with speeds 1, 1, 0.1 the third rank owns none
@pytest.mark.parametrize("speeds", [(1.0, 1.0, 0.1), (0.3, 1.0), (1.0,)], ids=str)
def test_state_is_bit_equal_under_any_plan(written, tmp_path, speeds):
    body = spec(len(speeds), groups(*speeds), iterations=FIRST, weightDecay=0.1)
    again = {"RESAVE_DIR": str(tmp_path / "again"), "HETEROTP_CHECKPOINT_DIR": str(written / "checkpoints")}
    run = Launched(tmp_path, body, attempt=1, command=[sys.executable, RESAVE], **again)
    assert run.wait() == 0, run.text()
    (before,), (after,) = files.paths(written / "checkpoints"), files.paths(tmp_path / "again")
    old, new = files.verify(before), files.verify(after)
    assert new.iteration == old.iteration == FIRST
    of_all, of_both = ([each for each in m.entries if not each.name.startswith("state/")] for m in (old, new))
    assert [(each.name, each.sha256) for each in of_both] == [(each.name, each.sha256) for each in of_all]
    assert any(entry.name.startswith("optimizer/") and entry.name.endswith("/exp_avg_sq") for entry in old.entries)


def test_fewer_ranks_go_on_as_if_nothing_had_happened(written, tmp_path):
    whole = losses(train(tmp_path / "whole", (1.0, 1.0, 0.5, 0.25), LAST))
    body = spec(3, groups(0.2, 1.0, 1.0), iterations=LAST, weightDecay=0.1, gradientClip=1.0)
    shutil.copytree(written / "checkpoints", tmp_path / "resumed" / "checkpoints")
    run = Launched(tmp_path / "resumed", body, attempt=2)
    assert run.wait() == 0, run.text()
    assert run.read("status.json")["resumedFrom"] == FIRST
    resumed = losses(run)
    assert min(resumed) == FIRST + 1
    for iteration, loss in resumed.items():
        # sums over ranks are taken in another order: fp32 rounding, carried through at most five Adam steps
        assert loss == pytest.approx(whole[iteration], rel=2e-4)


def test_a_job_that_is_created_again_takes_its_name_sake_s_checkpoints_only_if_asked(written, tmp_path):
    shutil.copytree(written / "checkpoints", tmp_path / "checkpoints")
    place = {Env.CHECKPOINT_DIR: str(tmp_path / "checkpoints")}

    def run(uid, attempt, iterations, **checkpoint):
        body = spec(2, iterations=iterations, checkpoint=checkpoint)
        started = Launched(tmp_path / uid, body, attempt, **place, **{Env.JOB_UID: uid})
        assert started.wait() == 0, started.text()
        return started

    first = run("first", 2, FIRST)  # attempt 1 was without a uid: an upgrade
    assert first.read("status.json")["resumedFrom"] == FIRST
    anew = run("second", 1, 2, keep=1)
    assert anew.read("status.json").get("resumedFrom") is None
    assert f"starts anew in {tmp_path}/checkpoints/job-second" in anew.text()
    assert run("second", 2, 3).read("status.json")["resumedFrom"] == 2
    assert [path.name for path in files.paths(tmp_path / "checkpoints")] == [f"step-{FIRST:09d}"]
    third = run("third", 1, FIRST + 1, adopt=True)
    assert third.read("status.json")["resumedFrom"] == FIRST
    late = Launched(tmp_path / "late", spec(2, iterations=9), 3, **place, **{Env.JOB_UID: "first"})
    assert late.wait() == EXIT_CHECKPOINT_OWNER, late.text()


def test_the_last_finite_checkpoint_survives_states_that_are_not(tmp_path):
    body = spec(2, iterations=9, checkpoint={"everyIterations": 1, "keep": 1})
    run = Launched(tmp_path, body, command=[sys.executable, SPOILED, "5"])
    assert run.wait() == EXIT_NON_FINITE, run.text()
    assert [path.name for path in files.paths(tmp_path / "checkpoints")] == ["step-000000004"]
    assert run.text().count("is not finite; the one before stays; training goes on") == 1
