"""The thread that loggers write in: the training loop only hands over entries."""

import sys
import threading
import time
from collections import deque
from collections.abc import Mapping

from heterotp_api.formatting import utc_time

from heterotp_trainer.reporting.loggers.entries import Logger, Note, Numbers

PAUSE_SECONDS = 1.0  # between two writes
MOST_WAITING = 20_000  # entries
CLOSE_SECONDS = 10.0


class Loggers:
    """Hands entries to loggers, by their field of spec.reporting; one that fails is left out from then on."""

    def __init__(self, loggers: Mapping[str, Logger]) -> None:
        self._loggers, self._waiting = dict(loggers), deque[Numbers | Note]()
        self._left_out, self._state = False, "running"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loggers", daemon=True)
        self.active = bool(loggers)
        if self.active:
            self._thread.start()

    def add(self, entry: Numbers | Note) -> None:
        """Write an entry soon; it is left out where loggers are far behind."""
        if not self.active:
            return
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(entry)
        elif not self._left_out:
            self._left_out = True
            _tell(f"reporting: {MOST_WAITING} entries wait to be written: some are left out")

    def close(self, state: str, *, wait: bool = True) -> None:
        """Write what waits and the end; after CLOSE_SECONDS it is left as it is. state: see Logger.close.

        wait: until then; without it the thread ends by itself.
        """
        if not self.active:
            return
        self.active, self._state = False, state
        self._stop.set()
        if not wait:
            return
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            _tell(f"reporting: not written to the end within {CLOSE_SECONDS:g} s: the last entries may be missing")

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            self._write()
        self._write()
        for name, logger in self._loggers.items():
            try:
                logger.close(self._state)
            except Exception as error:
                _tell(_failed(name, error))

    def _write(self) -> None:
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not taken:
            return
        numbers = [entry for entry in taken if isinstance(entry, Numbers)]
        notes = [entry for entry in taken if isinstance(entry, Note)]
        for name, logger in list(self._loggers.items()):
            try:
                logger.write(numbers, notes)
            except Exception as error:  # a full disk, a removed directory, a mistake of the library
                del self._loggers[name]
                _tell(_failed(name, error))


def _failed(name: str, error: Exception) -> str:
    reason = (str(error).strip().splitlines() or [""])[0]
    return f"spec.reporting.{name}: {type(error).__name__}: {reason}: it writes no more, training goes on"


def _tell(text: str) -> None:
    print(f"{utc_time(time.time())} {text}", file=sys.stderr, flush=True)
