"""Ranks that read for themselves wait for each other, however slow one is, and end together where one fails."""

import pytest

RANKS = 3


@pytest.fixture(scope="module")
def found(gang):
    return gang("storage_checks.py", RANKS)


def test_a_read_that_is_slower_than_a_collective_may_be_is_waited_for(found):
    assert [each["slow"] for each in found] == [0, 1, 2]


@pytest.mark.parametrize(
    ("case", "others", "own"),
    [
        ("input", "InputError: rank 2: no such file", "InputError: no such file"),
        ("other", "PeerLostError: rank 2: 'x'", "KeyError: 'x'"),
    ],
)
def test_the_error_of_one_rank_ends_all_at_once_and_names_it(found, case, others, own):
    assert [each[case] for each in found] == [others, others, own]


def test_an_error_of_all_ranks_is_each_ranks_own(found):
    assert [each["all"] for each in found] == ["InputError: no such file"] * RANKS
