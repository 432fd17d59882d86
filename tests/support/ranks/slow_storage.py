"""The built-in trainer on storage that takes SECONDS once for each thing: `slow_storage.py SECONDS`.

Rank 0 writes checkpoints and models slowly, and reads checkpoints slowly; rank 1 reads its units of a model slowly.
"""

import os
import sys
import time

from heterotp import run_rank
from heterotp_api.names import Env
from heterotp_trainer.checkpoint import files
from heterotp_trainer.parallelize import pretrained, weight_files
from heterotp_trainer.training.builtin import main

SECONDS = float(sys.argv[1])
SLOW_TENSOR = 3  # the number of the tensor that is read slowly


def slowly(holder, name):
    """Make the first call of a function take SECONDS longer."""
    original, called = getattr(holder, name), []

    def slow(*arguments, **options):
        if not called:
            called.append(name)
            time.sleep(SECONDS)  # the fault
        return original(*arguments, **options)

    setattr(holder, name, slow)


def read(*arguments, _read=files.read_tensors):
    for number, item in enumerate(_read(*arguments)):
        if number == SLOW_TENSOR:
            time.sleep(SECONDS)  # the fault
        yield item


if os.environ[Env.RANK] == "0":
    files.read_tensors = read
    slowly(files, "verify")
    slowly(files.Writer, "add")
    slowly(files.Writer, "commit")
    slowly(weight_files, "save_file")
    weight_files.FILE_BYTES = 1  # so that the first file is written while peers send their units of other tensors
elif os.environ[Env.RANK] == "1":
    slowly(pretrained, "read_units")
run_rank(main)
