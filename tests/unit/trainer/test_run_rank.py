"""Exit codes of a rank, by the error that ended it."""

import pytest
from heterotp_api.names import EXIT_BAD_INPUT, EXIT_NAME_UNRESOLVED, EXIT_PEER_LOST, VICTIM_EXITS
from heterotp_trainer.launch.rendezvous import NameUnresolvedError, PeerLostError
from heterotp_trainer.run_rank import explain


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NameUnresolvedError("a.b does not resolve"), EXIT_NAME_UNRESOLVED),
        (PeerLostError("rank 0 is not there"), EXIT_PEER_LOST),
        (ValueError("heads: 5"), EXIT_BAD_INPUT),
    ],
    ids=["name", "peer", "input"],
)
def test_exit_code_of_an_error(error, code):
    found = explain(error)
    assert found is not None and found[1] == code


def test_a_rank_that_cannot_resolve_the_name_is_a_victim():
    assert {EXIT_NAME_UNRESOLVED, EXIT_PEER_LOST} == VICTIM_EXITS
