"""A run of MLflow in its file store: an experiment named as the job, a run for each attempt."""

import os
from collections import deque
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from heterotp_trainer.reporting.loggers.entries import Note, Numbers

ENVIRONMENT = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
MOST_IN_BATCH = 1000  # metrics that MLflow takes at once
MOST_NOTES = 1000  # lines of notes.txt, the newest ones
MOST_TAG = 4000  # characters
STATUS = {"succeeded": "FINISHED", "failed": "FAILED", "stopping": "KILLED", "running": "FINISHED"}
NOTES = "notes.txt"


class ToMLflow:
    """Writes metrics; notes as an artifact, and the newest of each kind as a tag."""

    def __init__(self, folder: Path, job: str, attempt: int) -> None:
        """folder: of MLflow's file store. Raises ImportError where MLflow is not there."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self._metric = import_module("mlflow.entities").Metric
        self._client_class = import_module("mlflow.tracking").MlflowClient
        self._place, self._job, self._attempt = folder.absolute().as_uri(), job, attempt
        self._client: Any = None
        self._run, self._notes = "", deque[str](maxlen=MOST_NOTES)

    def _open(self) -> Any:
        if self._client is None:
            client = self._client_class(tracking_uri=self._place)
            found = client.get_experiment_by_name(self._job)
            experiment = found.experiment_id if found is not None else client.create_experiment(self._job)
            self._run = client.create_run(experiment, run_name=f"attempt {self._attempt}").info.run_id
            self._client = client
        return self._client

    def write(self, numbers: Sequence[Numbers], notes: Sequence[Note]) -> None:
        """See Logger.write."""
        client = self._open()
        metrics = [
            self._metric(name, value, round(each.time * 1000), each.iteration)
            for each in numbers
            for name, value in each.values.items()
        ]
        for start in range(0, len(metrics), MOST_IN_BATCH):
            client.log_batch(self._run, metrics=metrics[start : start + MOST_IN_BATCH])
        for note in notes:
            self._notes.append(f"iteration {note.iteration}: {note.text}")
        for kind, text in {note.kind: note.text for note in notes}.items():
            client.set_tag(self._run, f"heterotp.{kind}", text[:MOST_TAG])
        if notes:
            client.log_text(self._run, "\n".join(self._notes) + "\n", NOTES)

    def close(self, state: str) -> None:
        """See Logger.close."""
        if self._client is not None:
            self._client.set_terminated(self._run, STATUS[state])
