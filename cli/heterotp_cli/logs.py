"""The output of the launchers, written into one log per rank, whose size is bounded.

A log is rank-0.log. When it reaches ROTATE_BYTES it becomes rank-0.log.first, which is kept: the beginning of the run.
Later ones become rank-0.log.previous, each in place of the one before. A log has thus at most 3 x ROTATE_BYTES.
"""

import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from heterotp_api.names import RANK_LINE_PREFIX

PREFIX = re.compile(r"(\d+)".join(map(re.escape, RANK_LINE_PREFIX.split("{}"))).encode())
ATTEMPT_LINE = "--- attempt "  # first line of an attempt in a log
ROTATE_BYTES = 8 * 2**20
FIRST, PREVIOUS = ".first", ".previous"
NEXT = ".next"  # while files are rotated


def rank_log(logs: Path, rank: int) -> Path:
    """Return the log file of a rank."""
    return logs / f"rank-{rank}.log"


def pod_log(logs: Path, pod: str) -> Path:
    """Return the log file of the launcher of a pod."""
    return logs / f"pod-{pod}.log"


def earlier(log: Path) -> Path | None:
    """Return the file that holds the lines just before those of a log; None where there are none."""
    files = (log.with_name(log.name + end) for end in (PREVIOUS, FIRST))
    return next((file for file in files if file.exists()), None)


def sort_line(line: bytes) -> tuple[int | None, bytes]:
    """Return the rank of a line (None: the launcher) and the line without its prefix."""
    match = PREFIX.match(line)
    return (int(match[1]), line[match.end() :]) if match else (None, line)


class BoundedLog:
    """One log that is appended to; its beginning and its newest lines are kept."""

    def __init__(self, path: Path, rotate_bytes: int) -> None:
        self._path, self._rotate_bytes = path, rotate_bytes
        self._file = path.open("ab", buffering=0)

    def write(self, line: bytes) -> None:
        """Append a line, before that rotate the files where the log is full; one that cannot be rotated grows."""
        if self._file.tell() and self._file.tell() + len(line) > self._rotate_bytes:
            with suppress(OSError):  # of too many open files, say; the next line tries again
                self._rotate()
        self._file.write(line)

    def _rotate(self) -> None:
        end = PREVIOUS if earlier(self._path) is not None else FIRST
        coming = self._path.with_name(self._path.name + NEXT)
        opened = coming.open("ab", buffering=0)  # first: where it fails, nothing has changed
        self._path.replace(self._path.with_name(self._path.name + end))
        coming.replace(self._path)
        self._file.close()
        self._file = opened

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class LogSorter:
    """A thread that copies a launcher's output until its last rank has closed it."""

    def __init__(self, stream: IO[bytes], logs: Path, pod: str, ranks: Sequence[int], attempt: int) -> None:
        """Open the files of all ranks of the pod, so that a rank without output has a log too."""
        self._stream = stream
        paths: dict[int | None, Path] = {rank: rank_log(logs, rank) for rank in ranks}
        paths[None] = pod_log(logs, pod)
        self._logs = {rank: BoundedLog(path, ROTATE_BYTES) for rank, path in paths.items()}
        for log in self._logs.values():
            log.write(f"{ATTEMPT_LINE}{attempt}\n".encode())
        self._thread = threading.Thread(target=self._copy, name=f"logs {pod}", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        with self._stream:
            for line in self._stream:
                rank, text = sort_line(line)
                # full disk, removed directory, a file closed meanwhile: ranks must not block on a pipe that is not read
                with suppress(OSError, ValueError):
                    self._logs.get(rank, self._logs[None]).write(text)

    def close(self) -> None:
        """Wait until all output is written; for use after all processes of the pod have ended."""
        self._thread.join(timeout=5.0)
        for log in self._logs.values():
            log.close()
