"""A run of Weights & Biases for each attempt, by default in files alone."""

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from heterotp_trainer.reporting.loggers.entries import Note, Numbers

# nothing but what we hand over: no output, no sampling of the machine, no code of the user
SETTINGS = {
    "console": "off",
    "silent": True,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "disable_git": True,
    "disable_code": True,
    "disable_job_creation": True,
}


class ToWandB:
    """Writes rows with their `iteration`; notes as texts in such rows."""

    def __init__(self, folder: Path, job: str, attempt: int, mode: str) -> None:
        """folder: `wandb`, which the library makes itself. Raises ImportError where wandb is not there."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._wandb: Any = import_module("wandb")
        self._parent, self._job, self._attempt, self._mode = folder.parent, job, attempt, mode
        self._run: Any = None

    def _open(self) -> Any:
        if self._run is None:
            self._parent.mkdir(parents=True, exist_ok=True)  # the library takes another folder where it is absent
            self._run = self._wandb.init(
                project=self._job,
                name=f"attempt {self._attempt}",
                dir=str(self._parent),
                mode=self._mode,
                settings=self._wandb.Settings(**SETTINGS),
            )
            self._run.define_metric("*", step_metric="iteration")
        return self._run

    def write(self, numbers: Sequence[Numbers], notes: Sequence[Note]) -> None:
        """See Logger.write. Evaluations come before the numbers of their iteration: rows, not steps, are in order."""
        run = self._open()
        for each in numbers:
            run.log({"iteration": each.iteration, **each.values})
        for note in notes:
            run.log({"iteration": note.iteration, note.kind: note.text})

    def close(self, state: str) -> None:
        """See Logger.close."""
        if self._run is not None:
            self._run.finish(exit_code=int(state == "failed"))
