"""Exit codes of a rank, by the error that ended it."""

import json
import os
import subprocess
import sys

import pytest
import torch
from heterotp_api.names import (
    EXIT_BAD_INPUT,
    EXIT_LEFT,
    EXIT_NAME_UNRESOLVED,
    EXIT_NOT_LET_IN,
    EXIT_PEER_LOST,
    VICTIM_EXITS,
    Env,
)
from heterotp_trainer.errors import InputError
from heterotp_trainer.launch.rendezvous import NameUnresolvedError, PeerLostError
from heterotp_trainer.run_rank import explain
from heterotp_trainer.tensor_parallel import collectives
from support.launched import spec
from support.patience import COMPUTING_SECONDS
from torch.autograd import graph
from torch.distributed import distributed_c10d
from torch.utils.data import dataloader


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NameUnresolvedError("a.b does not resolve"), EXIT_NAME_UNRESOLVED),
        (PeerLostError("rank 0 is not there"), EXIT_PEER_LOST),
        (InputError("heads: 5"), EXIT_BAD_INPUT),
    ],
    ids=["name", "peer", "input"],
)
def test_exit_code_of_an_error(error, code):
    found = explain(error)
    assert found is not None and found[1] == code


def test_a_rank_that_cannot_resolve_the_name_is_a_victim():
    assert {EXIT_NAME_UNRESOLVED, EXIT_PEER_LOST, EXIT_NOT_LET_IN, EXIT_LEFT} == VICTIM_EXITS


def raised(error, file):
    """Return the error, raised by a line of the file."""
    with pytest.raises(type(error)) as caught:
        exec(compile("raise error", file, "exec"), {"error": error})
    return caught.value


@pytest.mark.parametrize(
    "text",
    ["DataLoader timed out after 5 seconds", "[Errno 32] Broken pipe", "no nccl.h found", "Connection reset by peer"],
)
@pytest.mark.parametrize("file", [__file__, dataloader.__file__, torch.nn.functional.__file__])
def test_an_error_of_user_code_is_no_lost_peer_whatever_its_words(text, file):
    assert explain(raised(RuntimeError(text), file)) is None
    assert explain(RuntimeError(text)) is None


@pytest.mark.parametrize(
    "file", [distributed_c10d.__file__, graph.__file__, collectives.__file__], ids=["torch", "backward", "ours"]
)
def test_an_error_of_a_collective_is_a_lost_peer(file):
    error = raised(RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242"), file)
    assert explain(error) == (f"a peer died or hangs: {error}", EXIT_PEER_LOST)
    assert explain(raised(RuntimeError("mat1 and mat2 shapes cannot be multiplied"), file)) is None


OWN = spec(2) | {"training": None, "runPolicy": {"collectiveTimeoutSeconds": 1}}


@pytest.mark.parametrize(
    ("body", "command"),
    [
        (spec(2, collectiveTimeoutSeconds=1), ["-m", "heterotp_trainer"]),
        (OWN, ["-c", "import heterotp; heterotp.run_rank(lambda session: None)"]),
    ],
    ids=["built-in", "own command"],
)
def test_a_rank_whose_rank_0_has_no_address_ends_with_its_own_exit_code_and_message(body, command):
    variables = {
        Env.RANK: "1",
        Env.WORLD_SIZE: "2",
        Env.MASTER_ADDR: "no such host",  # not a valid name, so that no DNS server is asked
        Env.SPEC: json.dumps({key: value for key, value in body.items() if value is not None}),
    }
    ended = subprocess.run(
        [sys.executable, "-P", *command],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=COMPUTING_SECONDS,
        check=False,
    )
    assert ended.returncode == EXIT_NAME_UNRESOLVED, ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last == "error: no such host does not resolve; is rank 0's pod running?"
