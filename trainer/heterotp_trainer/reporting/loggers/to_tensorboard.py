"""Event files of TensorBoard, by torch's SummaryWriter."""

import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from heterotp_trainer.reporting.loggers.entries import Note, Numbers


class ToTensorBoard:
    """Writes scalars and texts. A run that continues hides what an earlier attempt wrote of the same iterations."""

    def __init__(self, folder: Path, job: str) -> None:
        """folder: of all jobs. Raises ImportError where TensorBoard is not there."""
        self._writer_class = import_module("torch.utils.tensorboard").SummaryWriter
        self._path, self._writer = folder / job, None

    def _open(self, iteration: int) -> Any:
        if self._writer is None:
            threading.excepthook = _without_writers(threading.excepthook)
            self._writer = self._writer_class(str(self._path), purge_step=iteration)
        return self._writer

    def write(self, numbers: Sequence[Numbers], notes: Sequence[Note]) -> None:
        """See Logger.write."""
        entries: tuple[Numbers | Note, ...] = (*numbers, *notes)
        writer = self._open(min(entry.iteration for entry in entries))
        for each in numbers:
            for name, value in each.values.items():
                writer.add_scalar(name, value, each.iteration, walltime=each.time)
        for note in notes:
            writer.add_text(note.kind, note.text, note.iteration, walltime=note.time)
        writer.flush()

    def close(self, state: str) -> None:
        """See Logger.close."""
        if self._writer is not None:
            self._writer.close()


def _without_writers(hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a hook that prints no traceback of TensorBoard's own threads: the next call raises their error, too."""

    def told(failed: Any) -> None:
        if not type(failed.thread).__module__.startswith("tensorboard."):
            hook(failed)

    return told
