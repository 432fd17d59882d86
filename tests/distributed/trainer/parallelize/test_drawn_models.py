"""Models of any sizes on any plans: heads, groups, widths, units and rows are drawn, and who owns what."""

import pytest
from support.ranks.drawn_model_checks import COUNT, KINDS, RANKS


@pytest.fixture(scope="module")
def results(gang):
    """What each rank found, by rank and drawn model."""
    return gang("drawn_model_checks.py", RANKS)


@pytest.mark.parametrize("plan", ["first", "moved"])
def test_every_drawn_model_computes_what_the_plain_one_does(results, plan):
    wrong = [
        (each["errors"][plan], each["drawn"])
        for found in results
        for each in found
        if not each["errors"][plan] <= 1e-10
    ]
    assert not wrong, wrong[0]


def test_what_is_drawn_is_alike_on_all_ranks_and_of_many_kinds(results):
    drawn = [each["drawn"] for each in results[0]]
    assert all([each["drawn"] for each in found] == drawn for found in results)
    assert len(drawn) >= COUNT // 2 and {each["kind"] for each in drawn} == set(KINDS)
    of_heads = [each["groups"] for each in drawn]
    assert min(of_heads) < RANKS < max(of_heads) and any(count % RANKS for count in of_heads)
    assert any(each["units"] < RANKS for each in drawn)
    idle = [set(range(RANKS)) - {rank for owners in plan for rank in owners} for d in drawn for plan in d["owners"]]
    assert any(idle), "no rank without any unit"
