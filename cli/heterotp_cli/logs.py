"""The output of the launchers, written into one file per rank."""

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from heterotp_api.names import RANK_LINE_PREFIX

PREFIX = re.compile(r"(\d+)".join(map(re.escape, RANK_LINE_PREFIX.split("{}"))).encode())
ATTEMPT_LINE = "--- attempt "  # first line of an attempt in a log


def rank_log(logs: Path, rank: int) -> Path:
    """Return the log file of a rank."""
    return logs / f"rank-{rank}.log"


def pod_log(logs: Path, pod: str) -> Path:
    """Return the log file of the launcher of a pod."""
    return logs / f"pod-{pod}.log"


def sort_line(line: bytes) -> tuple[int | None, bytes]:
    """Return the rank of a line (None: the launcher) and the line without its prefix."""
    match = PREFIX.match(line)
    return (int(match[1]), line[match.end() :]) if match else (None, line)


class LogSorter:
    """A thread that copies a launcher's output until its last rank has closed it."""

    def __init__(self, stream: IO[bytes], logs: Path, pod: str, ranks: Sequence[int], attempt: int) -> None:
        """Open the files of all ranks of the pod, so that a rank without output has a log too."""
        self._stream = stream
        self._files: dict[int | None, IO[bytes]] = {rank: rank_log(logs, rank).open("ab") for rank in ranks}
        self._files[None] = pod_log(logs, pod).open("ab")
        for file in self._files.values():
            file.write(f"{ATTEMPT_LINE}{attempt}\n".encode())
            file.flush()
        self._thread = threading.Thread(target=self._copy, name=f"logs {pod}", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        with self._stream:
            for line in self._stream:
                rank, text = sort_line(line)
                file = self._files.get(rank, self._files[None])
                file.write(text)
                file.flush()

    def close(self) -> None:
        """Wait until all output is written; for use after all processes of the pod have ended."""
        self._thread.join(timeout=5.0)
        for file in self._files.values():
            file.close()
