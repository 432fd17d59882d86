"""The program of `heterotp check-model`: `python -m heterotp_trainer.training.check_model SCRIPT|DIRECTORY [...]`.

A script is run up to its call of `parallelize`, which ends the process; an error of its own code is shown on one line.
"""

import os
import runpy
import sys
from pathlib import Path
from types import TracebackType

from heterotp_api.names import EXIT_BAD_INPUT, Env

from heterotp_trainer.errors import InputError, with_place
from heterotp_trainer.parallelize.config_model import empty_model
from heterotp_trainer.parallelize.model import parallelize
from heterotp_trainer.run_rank import run_rank
from heterotp_trainer.session import Session


def check_directory(session: Session) -> None:
    """Check the model of the directory that the first argument names; `parallelize` ends the process after it."""
    parallelize(empty_model(sys.argv[1]), session, check=True)
    raise InputError(f"check-model: {Env.CHECK_MODEL} is not set: call heterotp check-model")


def run_script(script: Path, arguments: list[str]) -> None:
    """Run a script as `python SCRIPT ARGUMENTS` does."""
    sys.argv, sys.path[0] = [str(script), *arguments], str(script.resolve().parent)
    sys.excepthook = _show_and_end  # run_rank calls it, too
    runpy.run_path(str(script), run_name="__main__")


def _show_and_end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an error of the script's own code on one line, and end the process with the code of bad input."""
    said = " ".join(with_place(error).split())
    # torch.distributed collects what its excepthook's predecessor writes to sys.stderr, and would show it later
    print(f"error: {kind.__name__}: {said}", file=sys.__stderr__, flush=True)
    os._exit(EXIT_BAD_INPUT)


if __name__ == "__main__":
    if Path(sys.argv[1]).is_dir():
        run_rank(check_directory, telemetry=False)
    run_script(Path(sys.argv[1]), sys.argv[2:])
