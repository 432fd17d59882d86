"""Starts real gangs with the launcher, each in its own directory and on its own ports."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from heterotp_api.names import Env
from support.forking import forkable, rank_of
from support.patience import COMPUTING_SECONDS
from support.ports import free_port
from support.rank_server import rank_server


def spec(ranks=2, groups=None, checkpoint=None, **training):
    """Return the spec of a job that trains a small model on the digits."""
    body = {
        "tensorParallelDegree": ranks,
        "workerGroups": groups or [{"name": "a", "pods": 1, "processesPerPod": ranks, "relativeSpeed": 1}],
        "training": {
            "model": {"hiddenSize": 32, "depth": 1, "heads": 4, "patchSize": 4},
            "collectiveTimeoutSeconds": 30,
            **training,
        },
    }
    if checkpoint is not None:
        body["checkpoint"] = checkpoint
    return body


class Launched:
    """The launcher of one pod and the files that it wrote."""

    def __init__(self, workdir, body, attempt=1, command=(), forked=True, **environ):
        """Start the launcher; forked: by the rank server, where a fork can replace it (support.forking)."""
        self.workdir = Path(workdir)
        self.workdir.mkdir(parents=True, exist_ok=True)
        ranks = body["tensorParallelDegree"]
        self.port = free_port(ranks + 1)
        settings = {
            Env.JOB: "test",
            Env.ATTEMPT: str(attempt),
            Env.FIRST_RANK: "0",
            Env.PROCESSES: str(ranks),
            Env.SPEC: json.dumps(body),
            Env.WORKDIR: str(self.workdir),
            Env.CONTROL_DIR: str(self.workdir),
            Env.CHECKPOINT_DIR: str(self.workdir / "checkpoints"),
            Env.STATUS_PORT: str(self.port + 1),
            Env.WORLD_SIZE: str(ranks),
            Env.MASTER_ADDR: "127.0.0.1",
            Env.MASTER_PORT: str(self.port),
            "OMP_NUM_THREADS": "1",
            **environ,
        }
        self.log = self.workdir / f"log-{attempt}"
        arguments = [sys.executable, "-m", "heterotp_trainer.launch", *(["--", *command] if command else [])]
        environ = {**os.environ, **settings}
        with self.log.open("w") as log:
            if forked and forkable(arguments, environ):
                self.process = rank_server().start(arguments[1:], environ, log.fileno())
            else:
                self.process = subprocess.Popen(arguments, env=environ, stdout=log, stderr=subprocess.STDOUT)

    def text(self):
        return self.log.read_text()

    def wait(self):
        """Return the exit code; no process of the gang is left."""
        try:
            return self.process.wait(COMPUTING_SECONDS)
        finally:
            self.kill()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def read(self, name):
        """Return a JSON file of the run directory; None while it does not exist or is incomplete."""
        try:
            return json.loads((self.workdir / name).read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def history(self):
        try:
            return [json.loads(line) for line in (self.workdir / "history.jsonl").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def ranks(self):
        """Return the process ids of the ranks, in rank order."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
                if parent != str(self.process.pid):
                    continue
            except (OSError, IndexError):
                continue
            rank = rank_of(int(entry.name))
            if rank is not None:
                found[rank] = int(entry.name)
        return [found[rank] for rank in sorted(found)]

    def until(self, what, holds):
        """Wait until a condition holds; a failure shows the log."""
        deadline = time.monotonic() + COMPUTING_SECONDS
        while time.monotonic() < deadline:
            if value := holds():
                return value
            assert self.process.poll() is None, f"the gang ended before: {what}\n{self.text()}"
            time.sleep(0.05)
        raise AssertionError(f"not within {COMPUTING_SECONDS} s: {what}\n{self.text()}")

    def reach(self, iteration):
        """Wait until the history holds an iteration."""
        return self.until(
            f"iteration {iteration}", lambda: any(line["iteration"] >= iteration for line in self.history())
        )
