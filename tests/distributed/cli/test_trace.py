"""`heterotp trace` on real ranks: the asked ranks and iterations, on one clock; the run goes on."""

import json
import time

import pytest
from support.cli_process import cli_process, run_cli
from support.patience import PATIENCE_SECONDS


def iterations(workdir):
    path = workdir / "history.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def until(condition, process):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def run(job, workdir):
    with cli_process("run", job, "--workdir", workdir) as process:
        until(lambda: iterations(workdir) > 5, process)
        yield process


def test_ranks_are_traced_and_the_run_goes_on(workdir, run, tmp_path):
    done = run_cli("trace", workdir, "--all", "--steps", 3, "-o", tmp_path / "trace.json")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout == f"trace of 3 iterations: {tmp_path / 'trace.json'}\n"
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = [event for event in events if event["name"].startswith("iteration ")]
    spans = [[event for event in named if event["pid"] == process] for process in {event["pid"] for event in named}]
    assert [len(found) for found in spans] == [3, 3]
    assert [event["name"] for event in spans[0]] == [event["name"] for event in spans[1]]
    for begin, _, end in spans:
        own = [e["ts"] for e in events if e["pid"] == begin["pid"] and e["name"] in ("aten::mm", "aten::addmm")]
        assert own and begin["ts"] <= min(own) and max(own) <= end["ts"] + end["dur"]
    assert {"matmul", "wait"} <= {event["name"] for event in events if event.get("cat") == "heterotp"}
    assert "trace" not in json.loads((workdir / "control.json").read_text())
    before = iterations(workdir)
    until(lambda: iterations(workdir) > before + 3, run)

    done = run_cli("trace", workdir, "--rank", 1, "--steps", 1)
    assert done.returncode == 0, done.stderr
    folder = max((workdir / "traces").iterdir(), key=lambda path: path.stat().st_mtime)
    assert sorted(path.name for path in folder.iterdir()) == ["rank-1.json", "rank-1.meta.json", "trace.json"]

    for arguments, line in (
        (["--rank", "7"], "--rank: 7: the job has ranks 0 .. 1\n"),
        ([], "--rank: give ranks, or --all\n"),
        (["--rank", "1", "--all"], "--rank: give ranks, or --all, not both\n"),
        (["--all", "-o", "no/file.json"], "-o: 'no/file.json': name a file in a directory that exists\n"),
    ):
        done = run_cli("trace", workdir, *arguments)
        assert (done.returncode, done.stderr) == (2, line)
