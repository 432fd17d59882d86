"""The history of a chaos run: one JSON line per event, in the order in which the recorder saw them.

Every record has `at` (seconds since the run began) and `what`:

    run       seed, minutes, where
    fault     a fault that began, ended, or met nothing to hit (number, kind, state, arguments, and what it hit)
    object    an object that a watch showed: plural, type (ADDED, MODIFIED, DELETED, LISTED), and the fields that count
    listed    a complete list after a watch that lost events: plural and uids
    process   a start or an end of an operator process
    sample    the memory of an operator process, every second
    metrics   its health and some of its metrics, every few seconds
    loss      the loss of one iteration (ranks that really train)
    checkpoint  the step of the published checkpoint that an attempt began from
    published   what the manifests in the directory say: iteration and attempt of each checkpoint, and which are broken
    saved     how long a checkpoint took, by rank 0's metric
    phase     "settling" when the last fault has ended, "clearing" when all jobs are deleted, "end"
"""

import json
import threading
import time

FILE = "history.jsonl"


class Recorder:
    """Appends records to the history of a run; used by many threads."""

    def __init__(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._file = (directory / FILE).open("w")
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def now(self):
        """Return the seconds since the run began."""
        return time.monotonic() - self._began

    def write(self, what, **fields):
        """Append one record."""
        with self._lock:
            if self._file.closed:  # a watch that is just ending
                return
            self._file.write(json.dumps({"at": round(self.now(), 3), "what": what, **fields}) + "\n")
            self._file.flush()

    def close(self):
        with self._lock:
            self._file.close()


def read(directory):
    """Return the records of a run."""
    return [json.loads(line) for line in (directory / FILE).read_text().splitlines()]
