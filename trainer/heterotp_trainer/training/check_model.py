"""The program of `heterotp check-model DIRECTORY`: `python -m heterotp_trainer.training.check_model DIRECTORY`."""

import sys

from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.config_model import empty_model
from heterotp_trainer.parallelize.model import parallelize
from heterotp_trainer.run_rank import run_rank
from heterotp_trainer.session import Session


def main(session: Session) -> None:
    """Check the model of the directory; `parallelize` ends the process after it."""
    parallelize(empty_model(sys.argv[1]), session, check=True)
    raise InputError("check-model: HETEROTP_CHECK_MODEL is not set: call heterotp check-model")


if __name__ == "__main__":
    run_rank(main, telemetry=False)
