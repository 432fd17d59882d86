"""examples/own-model: a plain script and the converted one, as docs/convert-your-model.md shows them."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
import yaml
from heterotp_api.names import EXIT_PEER_LOST, EXIT_STOPPED, Env
from heterotp_trainer.plans.unit_plan import UnitPlan
from support.balancing_gang import write_control
from support.cli_process import DEADLINE_SECONDS, run_cli
from support.launched import Launched
from support.places import ROOT

EXAMPLE = ROOT / "examples" / "own-model"
TRAIN = [sys.executable, str(EXAMPLE / "train.py")]
SAME_WITHIN = 1e-3  # of a test loss, as the page states; fp32 rounding grows over 120 iterations
UNIFORM_LOSS = 4.85  # ln 128: every character as likely as any other


def job():
    return yaml.safe_load((EXAMPLE / "job.yaml").read_text())["spec"]


@pytest.fixture(scope="module")
def plain_loss():
    """The test loss that the plain script prints last."""
    settings = {"capture_output": True, "text": True, "timeout": DEADLINE_SECONDS}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, EXAMPLE / "plain.py"], env=environment, **settings)
    assert done.returncode == 0, done.stderr
    return float(re.findall(r"^epoch \d+: test loss ([\d.]+),", done.stdout, flags=re.MULTILINE)[-1])


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """The run directory of the converted script on three unequal ranks."""
    workdir = tmp_path_factory.mktemp("converted") / "run"
    done = run_cli("run", EXAMPLE / "job.yaml", "--workdir", workdir, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return workdir


def test_the_plain_script_learns(plain_loss):
    assert plain_loss < 0.6 * UNIFORM_LOSS


def test_the_converted_script_learns_the_same_on_unequal_ranks(converted, plain_loss):
    report = json.loads((converted / "report.json").read_text())
    assert (report["state"], report["iterations"], report["epochs"]) == ("succeeded", 120, 3)
    assert report["testLoss"] == pytest.approx(plain_loss, rel=SAME_WITHIN)


def test_the_slow_rank_begins_without_heads(converted):
    plan = UnitPlan.from_speeds([1.0, 1.0, 0.25], heads=4, ffn=256)
    assert plan.counts("heads") == (2, 2, 0)
    first = json.loads((converted / "report.json").read_text())["shares"][:3]
    assert [each["share"] for each in first] == pytest.approx([plan.share(rank) for rank in range(3)])


def test_units_that_move_in_mid_run_do_not_change_what_it_learns(tmp_path, plain_loss):
    write_control(tmp_path, 1, "RESHARD", window=3, reshard={"evict": [0]})
    run = Launched(tmp_path, job(), command=TRAIN)
    assert run.wait() == 0, run.text()
    report = run.read("report.json")
    assert report["moves"] and report["ranks"][0]["share"] == 0
    assert report["testLoss"] == pytest.approx(plain_loss, rel=SAME_WITHIN)


def test_a_stopped_one_says_so_and_goes_on_later(launch):
    run = launch(job(), command=TRAIN)
    run.reach(5)
    os.kill(run.ranks()[1], signal.SIGTERM)
    assert run.wait() == EXIT_STOPPED, run.text()
    again = launch(job(), attempt=2, command=TRAIN)
    assert again.wait() == 0, again.text()
    assert again.read("status.json")["resumedFrom"] >= 5
    assert again.read("report.json")["iterations"] == 120


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
