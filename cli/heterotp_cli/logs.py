"""The output of the launchers, sorted into one file per rank."""

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

MARK = re.compile(rb"^\[rank (\d+)\] ")  # the launcher marks every line of a rank


def rank_log(logs: Path, rank: int) -> Path:
    """Return where the output of a rank goes."""
    return logs / f"rank-{rank}.log"


def pod_log(logs: Path, pod: str) -> Path:
    """Return where the launcher's own output goes."""
    return logs / f"pod-{pod}.log"


def sort_line(line: bytes) -> tuple[int | None, bytes]:
    """Return the rank that a line belongs to (None: the launcher) and the line without its mark."""
    match = MARK.match(line)
    return (int(match[1]), line[match.end() :]) if match else (None, line)


class LogSorter:
    """One thread that copies a launcher's output until its last rank has closed it."""

    def __init__(self, stream: IO[bytes], logs: Path, pod: str, ranks: Sequence[int], attempt: int) -> None:
        """Open the files of all ranks of the pod, so that a silent rank has a log too."""
        self._stream = stream
        self._files: dict[int | None, IO[bytes]] = {rank: rank_log(logs, rank).open("ab") for rank in ranks}
        self._files[None] = pod_log(logs, pod).open("ab")
        for file in self._files.values():
            file.write(f"--- attempt {attempt}\n".encode())
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
        """Wait until all output is written; call it when all processes of the pod are gone."""
        self._thread.join(timeout=5.0)
        for file in self._files.values():
            file.close()
