"""A process that cleans up after a test run, also when that run is killed.

Lines of its standard input: `pid N` (kill this process at the end), `gone N` (do not), `run COMMAND` (a JSON list). The
input ends when the test run closes it or is killed; then the guardian kills the processes and runs the commands.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys


class Guardian:
    """The test run's end of the guardian process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, start_new_session=True, text=True, bufsize=1
        )

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def watch(self, pid: int) -> None:
        """Kill this process at the end."""
        self._send(f"pid {pid}")

    def forget(self, pid: int) -> None:
        """Do not kill this process: it has ended."""
        self._send(f"gone {pid}")

    def at_end(self, command: list[str]) -> None:
        """Run this command at the end."""
        self._send("run " + json.dumps(command))

    def finish(self) -> None:
        """Clean up now, and wait until that is done."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def main() -> None:
    """Run the guardian process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pids: set[int] = set()
    commands: list[list[str]] = []
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "pid":
            pids.add(int(rest))
        elif word == "gone":
            pids.discard(int(rest))
        else:
            commands.append(json.loads(rest))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for command in reversed(commands):
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
