"""Values that ranks exchange at the start and in checkpoints, and what a hostile rank sends instead."""

import pytest

RANKS = 3


def results(gang):
    return gang("message_checks.py", RANKS)


def test_every_rank_receives_the_values_of_all_whatever_their_length(gang):
    for result in results(gang):
        assert result["gathered"] == [[0, 1, True], [1, 1001, True], [2, 2001, True]]


def test_every_rank_receives_the_value_of_rank_0(gang):
    assert [result["broadcast"] for result in results(gang)] == [0, 0, 0]


def test_a_pickle_is_refused_and_never_read(gang):
    first, _, last = results(gang)
    assert first["pickle"].startswith("rank 1's message is no ") and last["pickle"] == first["pickle"]
    assert not first["unpickled"]


@pytest.mark.parametrize(
    ("attack", "complaint"),
    [("other type", "rank 1's message is no "), ("too long", "rank 1 announces a message of 1099511627776 bytes")],
)
def test_what_is_no_such_value_is_refused_with_the_ranks_name(gang, attack, complaint):
    first, _, last = results(gang)
    assert first[attack].startswith(complaint) and last[attack] == first[attack]
