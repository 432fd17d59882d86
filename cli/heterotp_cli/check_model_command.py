"""`heterotp check-model`: a model on shards against the unsharded one, on a gang of this machine."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import click
from heterotp_api.names import EXIT_BAD_INPUT as TRAINER_BAD_INPUT
from heterotp_api.names import Env

from heterotp_cli.errors import BadInput, Failed
from heterotp_cli.pods import LOOPBACK, free_port
from heterotp_cli.run_command import require_trainer

PROGRAM = "heterotp_trainer.training.check_model"
POLL_SECONDS = 0.1
LAST_LINES = 20
GRACE_SECONDS = 10.0  # for the peers of a rank that has failed


@click.command("check-model")
@click.argument("what", type=click.Path(path_type=Path, exists=True), metavar="SCRIPT|DIRECTORY")
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS]")
@click.option("--ranks", type=click.IntRange(1, 16), default=3, show_default=True, help="Processes to check with.")
def command(what: Path, arguments: tuple[str, ...], ranks: int) -> None:
    """Compare a small copy of a model on shards with the unsharded one, in float64, without training.

    SCRIPT: a training script, run with its ARGUMENTS up to its call of heterotp.parallelize. DIRECTORY: one with a
    config.json of transformers. Exits 0 where all outputs and gradients are equal, 2 with the name of what is not, or
    with the error that ended the script.
    """
    require_trainer()
    if arguments and os.path.isdir(what):
        raise BadInput(f"{what}: a directory has no arguments: leave out {' '.join(arguments)}")
    codes, texts = _run([sys.executable, "-m", PROGRAM, str(what), *arguments], ranks)
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    if any(codes):
        raise _failure(codes, lines)
    said = next((line for line in lines if line.startswith("check: ")), None)
    if said is None:
        raise BadInput(f"{what}: it ended without a call of heterotp.parallelize")
    click.echo(said.removeprefix("check: "))


def _failure(codes: list[int], lines: list[str]) -> BadInput | Failed:
    """Return the error of a check whose ranks ended so: the line of the first rank that is no victim of another one."""
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    first = next((line for line in errors if "a peer died" not in line), None)
    if TRAINER_BAD_INPUT in codes:
        return BadInput(first or "".join(lines[-1:]) or "the script ended with exit code 2 and no word")
    return Failed(first or "\n".join(lines[-LAST_LINES:]) or f"exit codes by rank: {codes}")


def _run(arguments: list[str], ranks: int) -> tuple[list[int], list[str]]:
    """Run a program as all ranks of a gang; return exit codes and outputs. Where one fails, the others are ended."""
    port = free_port()
    with ExitStack() as stack:
        outputs = [stack.enter_context(TemporaryFile("w+")) for _ in range(ranks)]
        started = []
        for rank, output in enumerate(outputs):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_PORT": port}
            environment = {**os.environ, "MASTER_ADDR": LOOPBACK, Env.CHECK_MODEL: "1", "OMP_NUM_THREADS": "1"}
            environment |= {name: str(value) for name, value in place.items()}
            started.append(subprocess.Popen(arguments, env=environment, stdout=output, stderr=subprocess.STDOUT))
            stack.callback(started[-1].wait)
            stack.callback(started[-1].kill)
        _wait(started)
        codes = [process.wait() for process in started]
        return codes, [_text(output) for output in outputs]


def _wait(started: list[subprocess.Popen[bytes]]) -> None:
    """Wait until all have ended; a grace after the first failure kill the others, which wait for it."""
    deadline: float | None = None
    while any(process.poll() is None for process in started):
        if deadline is None and any(process.poll() for process in started):
            deadline = time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            for process in started:
                process.kill()
        time.sleep(POLL_SECONDS)


def _text(output: IO[str]) -> str:
    output.seek(0)
    return output.read()
