"""Further places for what a run shows: files of TensorBoard, MLflow and Weights & Biases, written by rank 0."""

from typing import Literal

from pydantic import Field

from heterotp_api.base import Model
from heterotp_api.schema import UNDECLARED_DEFAULT

FOLDERS = {"tensorboard": "tensorboard", "mlflow": "mlruns", "wandb": "wandb"}  # by field of Reporting


class TensorBoard(Model):
    """Event files in tensorboard/."""


class MLflow(Model):
    """A run of MLflow in mlruns/, with MLflow's file store."""


class WandB(Model):
    """A run of Weights & Biases in wandb/."""

    mode: Literal["offline", "online"] = Field(
        "offline",
        description="offline (default): files alone; online: sent, too, where ranks have WANDB_API_KEY.",
        json_schema_extra={UNDECLARED_DEFAULT: True},
    )


class Reporting(Model):
    """What rank 0 also writes by other projects' libraries; of the attempt that starts with it."""

    tensorboard: TensorBoard | None = None
    mlflow: MLflow | None = None
    wandb: WandB | None = None

    @property
    def asked(self) -> tuple[str, ...]:
        """The fields that are given."""
        return tuple(name for name in FOLDERS if getattr(self, name) is not None)
