"""`heterotp run --ui` with real ranks: the page shows the run, its buttons change it, and it shows the end."""

import json
import os
import signal
import threading
import time
from http.client import HTTPException
from pathlib import Path

from support.cli_process import cli_process
from support.live_page import fetched, posted
from support.patience import PATIENCE_SECONDS
from support.run_processes import processes_of


class Poller(threading.Thread):
    """Asks as an open page does, until nobody answers; keeps the last answer."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.last = address, None

    def run(self):
        try:
            while True:
                self.last = fetched(f"{self.address}data")
                time.sleep(0.2)
        except (OSError, HTTPException):
            return


def until(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def serving(workdir):
    """Return the processes that serve the page of a run directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"ui" in words and os.fsencode(workdir) in words:
            found.append(entry.name)
    return found


def test_a_run_is_watched_changed_and_seen_to_end(job, workdir):
    with cli_process("run", job, "--workdir", workdir, "--ui") as run:
        line = run.stdout.readline()
        assert line.startswith(f"page of {workdir}: http://127.0.0.1:")
        address = line.split()[-1]
        page = Poller(address)
        page.start()
        until(lambda: page.last is not None and len(page.last["iteration"]) > 5)
        assert page.last["live"]["running"] and page.last["ranks"][1]["matmul"] > 0
        told = posted(f"{address}injection", {"rank": 1, "slowdown": 2})
        assert told["verdict"] in ("in force", "pending"), told  # a busy machine may need longer than one waits
        until(lambda: page.last["ranks"][1]["injectedSlowdown"] == 2)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=PATIENCE_SECONDS)
        assert run.returncode == 130, out + err
        page.join(PATIENCE_SECONDS)
    assert (page.last["state"], page.last["live"]["running"]) == ("stopped", False)
    assert json.loads((workdir / "report.json").read_text())["state"] == "stopped"
    assert (serving(workdir), processes_of(workdir)) == ([], {})


def test_a_killed_command_line_takes_the_page_with_it(job, workdir):
    with cli_process("run", job, "--workdir", workdir, "--ui") as run:
        assert run.stdout.readline().startswith("page of ")
        assert serving(workdir)
        run.kill()
        until(lambda: not serving(workdir) and not processes_of(workdir))
