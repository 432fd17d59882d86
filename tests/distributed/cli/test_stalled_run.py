"""`heterotp run` of a script that hangs: the stall is shown, and Ctrl-C ends the run with it."""

import json
import os
import signal
import sys
import time

import pytest
import yaml
from heterotp_cli.errors import EXIT_INTERRUPTED
from support.cli_process import DEADLINE_SECONDS, cli_process
from support.places import RANK_SCRIPTS

SUM = "the others wait for the sum of attention.proj; continue with --resume"
ALL = "rank 0 is still computing (fixed, since "


def write_job(path, mistake):
    command = [sys.executable, str(RANK_SCRIPTS / "own_loop.py"), mistake]
    template = {"spec": {"containers": [{"name": "trainer", "command": command}]}}
    group = {"name": "a", "processesPerPod": 3, "relativeSpeed": 1, "template": template}
    body = {
        "apiVersion": "heterotp.io/v1alpha1",
        "kind": "HeteroTPJob",
        "metadata": {"name": "hangs"},
        "spec": {"tensorParallelDegree": 3, "workerGroups": [group]},
    }
    path.write_text(yaml.safe_dump(body))
    return path


def stalled(workdir, process):
    """Wait until status.json shows a stall."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        status = workdir / "status.json"
        if status.exists() and json.loads(status.read_text()).get("stall"):
            return
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("mistake", "where"),
    [("a rank hangs", "rank 1 is still computing (fixed, since "), ("all ranks hang", ALL)],
)
def test_ctrl_c_ends_a_stalled_run_and_the_last_line_is_the_stall(tmp_path, workdir, mistake, where):
    environ = {**os.environ, "PYTHONPATH": str(RANK_SCRIPTS.parents[1])}  # where own_loop.py finds `support`
    with cli_process("run", write_job(tmp_path / "job.yaml", mistake), "--workdir", workdir, env=environ) as run:
        stalled(workdir, run)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate()
    assert run.returncode == EXIT_INTERRUPTED, out + err
    shown, *_, last = [line for line in out.splitlines() if "no iteration for " in line]
    assert where in shown and last == out.splitlines()[-1]
    assert last.startswith("stopped without a last checkpoint: no iteration for ") and where in last
    assert last.endswith(SUM if mistake == "a rank hangs" else "continue with --resume")
