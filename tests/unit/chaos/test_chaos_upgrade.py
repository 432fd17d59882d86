"""What must stay as it is while another version of the operator takes over."""

import pytest
from chaos.upgrade import differences, kinds
from support.places import ROOT

BEFORE = {"attempt": 1, "restarts": 0, "pods": {"j-a-0-1": "u1", "j-a-1-1": "u2"}}


def test_a_gang_that_runs_on_does_not_differ():
    assert differences(BEFORE, {**BEFORE, "pods": dict(reversed(BEFORE["pods"].items()))}) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("attempt", 2), ("restarts", 1), ("pods", {"j-a-0-1": "u3", "j-a-1-1": "u2"}), ("pods", {"j-a-0-1": "u1"})],
    ids=["another attempt", "a restart", "a pod made again", "a pod lost"],
)
def test_a_gang_that_does_not_run_on_is_named(name, value):
    (line,) = differences(BEFORE, {**BEFORE, name: value})
    assert line == f"{name}: {BEFORE[name]} became {value}"


def test_kinds_are_those_of_the_source_tree_that_is_given():
    assert {each["spec"]["names"]["kind"] for each in kinds(ROOT)} >= {"HeteroTPJob", "BalancingPolicy"}
