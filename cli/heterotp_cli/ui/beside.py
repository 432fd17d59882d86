"""Serves a run's page beside the run, as a process of its own: neither slows nor ends the other."""

import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from heterotp_api.processes import die_with_parent

from heterotp_cli.errors import Failed
from heterotp_cli.ui.server import LINGER_SECONDS

START_SECONDS = 120.0  # for the address
END_SECONDS = LINGER_SECONDS + 5.0


@contextmanager
def page_beside(place: Path) -> Iterator[None]:
    """Serve the page of a prepared run directory and print its address; at the end an open page sees how it ended."""
    command = [sys.executable, "-P", "-m", "heterotp_cli", "ui", str(place)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the run
        preexec_fn=die_with_parent(signal.SIGTERM),
    )
    try:
        click.echo(_first_line(process))
        yield
    finally:
        _end(process)


def _first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
    line = process.stdout.readline().strip() if ready else ""
    if not line:  # it has printed why
        raise Failed("--ui: the page could not be served: leave --ui out")
    return line


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
