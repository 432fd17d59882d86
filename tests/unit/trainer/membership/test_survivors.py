"""Who goes on, who mirrors whom, and where the units of lost ranks go."""

import pytest
from heterotp_trainer.membership.buddies import buddies, wards
from heterotp_trainer.membership.succession import inherited, shared_out
from heterotp_trainer.membership.survivors import Left, needs_lease, newest, problem, unprotected
from heterotp_trainer.plans.unit_plan import FAMILIES, UnitPlan
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("before", "live", "least", "leased", "words"),
    [
        ((0, 1, 2, 3), (1, 2, 3), 2, False, ""),
        ((0, 1, 2, 3), (1, 2, 3), 4, False, "minRanks is 4"),
        ((0, 1, 2, 3), (3,), 1, True, "no majority"),
        ((0, 1, 2, 3), (0, 2), 1, False, "no majority"),
        ((0, 1, 2, 3), (0, 2), 1, True, ""),
        ((0, 1), (1,), 1, True, ""),
        ((0, 1), (0, 1), 1, True, "no rank was lost"),
    ],
)
def test_who_may_go_on(before, live, least, leased, words):
    found = problem(before, live, least, leased=leased)
    assert (words in found) if words else not found


@given(st.integers(1, 40), st.data())
def test_two_parts_of_a_gang_never_both_go_on(ranks, data):
    one = data.draw(st.sets(st.integers(0, ranks - 1)))
    other = set(range(ranks)) - one
    holder = data.draw(st.booleans())  # of the lease, which one half can get
    goes = [
        bool(part) and not problem(range(ranks), part, 1, leased=needs_lease(range(ranks), part) and holder == first)
        for part, first in ((one, True), (other, False))
    ]
    assert not all(goes)


def test_a_buddy_is_on_another_node_where_there_is_one():
    assert buddies(["a", "a", "b", "b"]) == (2, 2, 0, 0)
    assert buddies(["a"] * 3) == (1, 2, 0)
    assert buddies(["a"]) == ()


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=12))
def test_every_rank_has_a_buddy_that_is_not_itself(nodes):
    found = buddies(nodes)
    assert all(buddy != rank for rank, buddy in enumerate(found))
    assert sorted(ward for rank in range(len(nodes)) for ward in wards(found, rank)) == list(range(len(nodes)))
    for rank, buddy in enumerate(found):
        assert nodes[buddy] != nodes[rank] or len(set(nodes)) == 1


def left(rank, applied=5, ready=0, plan="p", mirrored="p"):
    return Left(rank, 1, 0, applied=applied, ready=ready, plan=plan, mirrored=mirrored)


RING = {0: 1, 1: 2, 2: 3, 3: 0}


@pytest.mark.parametrize(
    ("lefts", "words"),
    [
        ([left(0), left(1), left(2)], ""),
        ([left(1), left(2), left(3)], ""),
        ([left(0), left(2)], ""),
        ([left(0), left(3)], "rank 1 and the one that mirrors it, 2, are lost together"),
        ([left(0, plan=""), left(1), left(2)], "on their way"),
        ([left(0, plan="q"), left(1), left(2)], "on their way"),
        ([left(0, mirrored=""), left(1), left(2)], "rank 3 was not mirrored yet"),
        ([left(0), left(1, applied=4, ready=5), left(2)], ""),
        ([left(0), left(1, applied=4), left(2)], "ranks [1] lack the gradients of iteration 5"),
    ],
)
def test_whether_the_survivors_hold_everything(lefts, words):
    found = unprotected(lefts, RING, range(4))
    assert (words in found) if words else not found


def test_all_continue_from_the_last_update():
    assert newest([left(0, applied=4, ready=5), left(1)]).rank == 1


@given(st.integers(2, 6), st.data())
def test_units_of_lost_ranks_go_to_their_heirs_and_are_shared_out(ranks, data):
    counts = [data.draw(st.lists(st.integers(0, 7), min_size=ranks, max_size=ranks)) for _ in FAMILIES]
    before = UnitPlan.from_counts(*counts)
    lost = data.draw(st.integers(0, ranks - 1))
    members = [rank for rank in range(ranks) if rank != lost]
    heirs = {lost: (lost + 1) % ranks}
    held = inherited(before, heirs, members)
    for family in FAMILIES:
        for number, rank in enumerate(members):
            owned = set(before.owned(family, rank))
            if rank == heirs[lost]:
                owned |= set(before.owned(family, lost))
            assert set(held.owned(family, number)) == owned
    speeds = data.draw(st.lists(st.floats(0.1, 10), min_size=len(members), max_size=len(members)))
    after = shared_out(held, speeds)
    assert [after.total(family) for family in FAMILIES] == [before.total(family) for family in FAMILIES]
    assert after.ranks == len(members)
