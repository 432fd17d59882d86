"""A process that cleans up after a test run, however that run ends.

It reads lines from its standard input: `pid N` (kill this process), `gone N` (no longer), `run COMMAND` (JSON list).
When the input ends, because the test run closed it or was killed, it kills the processes and runs the commands.
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

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def watch(self, pid: int) -> None:
        """Kill this process at the end."""
        self._say(f"pid {pid}")

    def forget(self, pid: int) -> None:
        """Leave this process id alone: it has ended."""
        self._say(f"gone {pid}")

    def at_end(self, command: list[str]) -> None:
        """Run this command at the end."""
        self._say("run " + json.dumps(command))

    def finish(self) -> None:
        """Do now what is to be done at the end, and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def main() -> None:
    """Be the guardian."""
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
