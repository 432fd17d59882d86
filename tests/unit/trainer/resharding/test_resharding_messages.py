"""Messages: both ends make the same list, and every unit arrives once, at its place."""

import numpy as np
import pytest
from heterotp_trainer.plans.unit_plan import FAMILIES, UnitPlan, transfers
from heterotp_trainer.resharding.messages import kept, messages, place
from hypothesis import given
from hypothesis import strategies as st
from support.resharding_world import partitions

RANKS = 3


def owned(plan, family, rank):
    return list(plan.owned(family, rank))


@given(
    partitions(RANKS, rows=17),
    partitions(RANKS, rows=17),
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(1, 100),
)
def test_every_unit_arrives_once_at_its_place(before, after, unit_bytes, most):
    journeys = transfers(before, after)
    for family in FAMILIES:
        own = [each for each in journeys if each.family == family]
        found = messages(before, after, own, unit_bytes, most)
        for state in range(len(unit_bytes)):
            held = [np.full(after.counts(family)[rank], -1) for rank in range(RANKS)]
            for rank in range(RANKS):
                mine = owned(before, family, rank)
                for source, target, units in kept(before, after, family, rank):
                    held[rank][target : target + units] = mine[source : source + units]
            for (source, target), every in found.items():
                mine = owned(before, family, source)
                for piece in (piece for message in every for piece in message if piece.state == state):
                    there = slice(piece.put_at, piece.put_at + piece.units)
                    assert (held[target][there] == -1).all()
                    held[target][there] = mine[piece.taken_from : piece.taken_from + piece.units]
            assert [each.tolist() for each in held] == [owned(after, family, rank) for rank in range(RANKS)]


@given(
    partitions(RANKS, rows=17),
    partitions(RANKS, rows=17),
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(1, 100),
)
def test_no_message_is_larger_than_allowed_but_for_a_single_unit(before, after, unit_bytes, most):
    journeys = [each for each in transfers(before, after) if each.family == "ffn"]
    for every in messages(before, after, journeys, unit_bytes, most).values():
        for message in every:
            nbytes = sum(piece.units * unit_bytes[piece.state] for piece in message)
            assert nbytes <= most or (len(message) == 1 and message[0].units == 1)
        sizes = [sum(piece.units * unit_bytes[piece.state] for piece in message) for message in every]
        first = [unit_bytes[message[0].state] for message in every]
        # nothing is cut smaller than it must be: the next unit would not have fitted
        assert all(size + unit > most for size, unit in zip(sizes, first[1:], strict=False))


@pytest.mark.parametrize(("unit", "found"), [(2, 0), (4, 2), (7, 3), (9, 5)])
def test_a_unit_has_its_place_among_the_ranks_own(unit, found):
    assert place(((2, 5), (7, 10)), unit) == found


def test_nothing_travels_between_equal_plans():
    plan = UnitPlan.even(RANKS, 12, 40)
    assert transfers(plan, plan) == ()
    assert messages(plan, plan, (), [4], 10) == {}
