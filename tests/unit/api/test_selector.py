"""Label selectors select as defined in meta/v1."""

import pytest
from heterotp_api.policy import LabelSelector
from heterotp_api.selector import matches

LABELS = {"team": "vision", "tier": "gold"}


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ({}, True),
        ({"matchLabels": {"team": "vision"}}, True),
        ({"matchLabels": {"team": "vision", "tier": "silver"}}, False),
        ({"matchLabels": {"absent": "x"}}, False),
        (expression("team", "In", "speech", "vision"), True),
        (expression("team", "In", "speech"), False),
        (expression("absent", "In", "x"), False),
        (expression("team", "NotIn", "speech"), True),
        (expression("team", "NotIn", "speech", "vision"), False),
        (expression("absent", "NotIn", "x"), True),
        (expression("team", "Exists"), True),
        (expression("absent", "Exists"), False),
        (expression("absent", "DoesNotExist"), True),
        (expression("team", "DoesNotExist"), False),
        ({"matchLabels": {"team": "vision"}, **expression("tier", "NotIn", "gold")}, False),
        ({"matchLabels": {"team": "speech"}, **expression("tier", "In", "gold")}, False),
    ],
    ids=str,
)
def test_selector(selector, selects):
    assert matches(LabelSelector.model_validate(selector), LABELS) is selects


@pytest.mark.parametrize(
    ("selector", "selects"), [({}, True), (expression("a", "NotIn", "b"), True), (expression("a", "Exists"), False)]
)
def test_objects_without_labels(selector, selects):
    assert matches(LabelSelector.model_validate(selector), None) is selects


def test_no_selector_selects_nothing():
    assert not matches(None, LABELS)
