"""The command line as a process of its own, for tests; no process outlives its test."""

import subprocess
import sys
import threading
from contextlib import contextmanager

DEADLINE_SECONDS = 240.0  # ends a process that hangs; below pytest's own timeout, and far above any machine's need


def run_cli(*arguments, module="heterotp_cli", **settings):
    """Run the command line to its end and return the completed process."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, **settings)


@contextmanager
def cli_process(*arguments, module="heterotp_cli", **settings):
    """Give a running command line; it is killed at the end of the block or at the deadline, its pipes are closed."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, **settings) as process:
        timer = threading.Timer(DEADLINE_SECONDS, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()
