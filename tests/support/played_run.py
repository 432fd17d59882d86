"""A run directory in which a test plays rank 0: it reports a status, and follows the control document or refuses it."""

import json
import threading
from contextlib import contextmanager

from heterotp_api.control import ControlDocument
from heterotp_cli.workdir import prepare, read_json, write_json
from support.cli_views import run_status

GROUPS = [{"name": "fast", "pods": 1, "processesPerPod": 3}, {"name": "slow", "pods": 1, "processesPerPod": 1}]
MANIFEST_INJECTION = {"uid": "by-manifest", "name": "demo-rank-3", "ranks": [3], "slowdown": 2}


class Run:
    """A run directory, and rank 0 in it."""

    def __init__(self, place, groups=GROUPS):
        self.place = place
        control = {"schemaVersion": 1, "generation": 1, "balancing": {"strategy": "AUTO", "maxPrunedShare": 0.0}}
        prepare(place, "demo", 1, {**control, "injections": [MANIFEST_INJECTION]}, groups)
        self.reported = {}
        self.report()

    def report(self, **changes):
        self.reported |= changes
        write_json(self.place / "status.json", run_status(**self.reported).dump())

    @property
    def control(self):
        return ControlDocument.model_validate(read_json(self.place / "control.json"))

    @property
    def injections(self):
        return {each.uid: (each.ranks, each.slowdown) for each in self.control.injections}

    @contextmanager
    def obeying(self, refuse=""):
        """Play a rank 0 that applies every document, or refuses it."""
        stop = threading.Event()

        def obey():
            while not stop.wait(0.02):
                if refuse:
                    self.report(control_error=refuse, control_error_generation=self.control.generation)
                else:
                    generation = self.control.generation
                    self.report(applied_generation=generation, control_generation=generation)

        thread = threading.Thread(target=obey)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def history_entry(iteration, count=4, **changes):
    """Return the entry of an iteration in history.jsonl."""
    row = {"matmul": 0.1, "unit": 0.0, "fixed": 0.0, "wait": 0.02, "chi": None, "share": 1 / count}
    base = {"attempt": 1, "iteration": iteration, "iterationSeconds": 0.12, "measured": True, "loss": 1 / iteration}
    return base | {"accuracy": None, "ranks": [dict(row) for _ in range(count)]} | changes


def append_history(place, *entries):
    """Append iterations to the history of a run directory."""
    with (place / "history.jsonl").open("a") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)
