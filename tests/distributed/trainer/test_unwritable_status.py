"""A rank whose run directory takes no status any more still ends with the code and the message of its own failure."""

import sys

import pytest
from heterotp_api.names import EXIT_BAD_INPUT, EXIT_CHECKPOINT_OWNER
from support.launched import spec

SCRIPT = """
import os, sys
from contextlib import suppress
from pathlib import Path
import torch
from heterotp import ParallelMLP, run_rank
from heterotp_trainer.checkpoint.errors import OwnerError

def main(session):
    model = ParallelMLP(session.shard(), 4, 8, name="mlp", seed=1)
    session.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    aside = Path(os.environ["HETEROTP_WORKDIR"]) / ".status.json"
    while not aside.is_dir():  # another thread writes such a file
        with suppress(FileExistsError):
            aside.mkdir()
    {end}

run_rank(main)
"""
NOT_SHOWN = "the failure is not in the status: IsADirectoryError"


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        ("raise OwnerError('a newer attempt')", EXIT_CHECKPOINT_OWNER, "error: a newer attempt"),
        ("session.boundary(1)", EXIT_BAD_INPUT, "error: session.boundary: the optimizer made no step"),
        ("raise LookupError('of its own')", 1, "[rank0]: LookupError: of its own"),
        ("sys.exit(9)", 9, NOT_SHOWN),
    ],
    ids=["refused", "input", "user code", "exit"],
)
def test_the_end_is_that_of_the_failure(launch, end, code, message):
    body = spec(1)
    del body["training"]
    run = launch(body, command=[sys.executable, "-c", SCRIPT.replace("{end}", end)])
    assert run.wait() == code, run.text()
    assert f"[rank 0] {message}" in run.text() and NOT_SHOWN in run.text(), run.text()
