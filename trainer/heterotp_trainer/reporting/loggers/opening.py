"""Which loggers a job asks for, whether they can be had, and where their files go."""

import os
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from heterotp_api.reporting import FOLDERS, Reporting

from heterotp_trainer.errors import InputError
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.reporting.loggers.entries import Logger
from heterotp_trainer.reporting.loggers.thread import Loggers
from heterotp_trainer.reporting.loggers.to_mlflow import ToMLflow
from heterotp_trainer.reporting.loggers.to_tensorboard import ToTensorBoard
from heterotp_trainer.reporting.loggers.to_wandb import ToWandB

KEY = "WANDB_API_KEY"


def refusal(environment: RankEnvironment, environ: Mapping[str, str] = os.environ) -> str:
    """Return why this rank cannot write what spec.reporting asks for; empty: it can, or it need not."""
    reporting = environment.spec.reporting
    if environment.rank != 0 or reporting is None or not reporting.asked:
        return ""
    missing = [name for name in reporting.asked if find_spec(name) is None]
    if missing:
        return _advice(missing[0])
    if reporting.wandb is not None and reporting.wandb.mode == "online" and not environ.get(KEY):
        return f"spec.reporting.wandb.mode: online needs {KEY} in the environment of rank 0: give it, or take offline"
    return "" if _root(environment) else "spec.reporting: there is no place for its files: give spec.checkpoint"


def open_loggers(environment: RankEnvironment) -> Loggers:
    """Return the loggers of rank 0; raises InputError naming the one whose library cannot be imported."""
    reporting, root = environment.spec.reporting, _root(environment)
    if environment.rank != 0 or reporting is None or root is None:
        return Loggers({})
    job = re.sub(r"[^A-Za-z0-9._-]|^[.]", "_", environment.job)
    makers = _makers(reporting, job, environment.attempt)
    loggers: dict[str, Logger] = {}
    for name in reporting.asked:
        try:
            loggers[name] = makers[name](root / FOLDERS[name])
        except ImportError as error:
            raise InputError(f"{_advice(name)} ({error})") from None
    return Loggers(loggers)


def _makers(reporting: Reporting, job: str, attempt: int) -> dict[str, Callable[[Path], Logger]]:
    mode = reporting.wandb.mode if reporting.wandb is not None else "offline"
    return {
        "tensorboard": lambda folder: ToTensorBoard(folder, job),
        "mlflow": lambda folder: ToMLflow(folder, job, attempt),
        "wandb": lambda folder: ToWandB(folder, job, attempt, mode),
    }


def _root(environment: RankEnvironment) -> Path | None:
    """Return the run directory, in a cluster the directory of checkpoints."""
    return environment.workdir or environment.checkpoint_dir


def _advice(name: str) -> str:
    return f"spec.reporting.{name}: the package {name} cannot be used: pip install 'heterotp[{name}]'"
