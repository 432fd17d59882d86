"""The demo keeps its promise: it learns the digits on unequal ranks (of plain processors: accuracy takes no time)."""

import json
import subprocess
import sys

import yaml
from support.places import ROOT


def test_the_demo_learns_the_digits(tmp_path):
    body = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text())
    body["spec"]["balancing"] = {"policy": {"strategy": "None"}}  # equal processors would soon get equal shares
    for group in body["spec"]["workerGroups"]:
        group["device"] = {"type": "cpu"}
    job, workdir = tmp_path / "demo.yaml", tmp_path / "run"
    job.write_text(yaml.safe_dump(body))
    command = [sys.executable, "-m", "heterotp_cli", "run", str(job), "--workdir", str(workdir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((workdir / "report.json").read_text())
    assert report["testAccuracy"] >= 0.93
    assert [rank["share"] < 0.1 for rank in report["ranks"]] == [False, False, False, True]
