"""Learning rates by schedule."""

import pytest
import torch
from heterotp_api.training import ParameterGroup, Training
from heterotp_trainer.errors import InputError
from heterotp_trainer.training.optimizer import adamw
from heterotp_trainer.training.schedules import learning_rate, set_learning_rate
from torch import nn

FLOOR = {"learning_rate": 0.1, "learning_rate_floor": 0.02, "warmup_iterations": 2}


def rates(total, **training):
    return [learning_rate(Training(**training), iteration, total) for iteration in range(total + 1)]


def test_a_line_ends_at_the_floor():
    found = rates(12, schedule="linear", **FLOOR)
    assert found[:3] == pytest.approx([0.05, 0.1, 0.1])
    assert found[7] == pytest.approx(0.06) and found[12] == pytest.approx(0.02)
    assert rates(10, schedule="linear", learning_rate=0.1)[10] == 0


def test_a_cosine_ends_at_the_floor():
    found = rates(12, schedule="cosine", **FLOOR)
    assert found[2] == pytest.approx(0.1) and found[7] == pytest.approx(0.06) and found[12] == pytest.approx(0.02)
    assert found[4] > 0.02 + 0.08 * 0.8  # flatter than a line at first


def test_warmup_stable_decay_declines_at_the_end():
    found = rates(20, schedule="warmup-stable-decay", decay_iterations=8, **FLOOR)
    assert found[2:13] == pytest.approx([0.1] * 11)
    assert found[16] == pytest.approx(0.06) and found[20] == pytest.approx(0.02)


def test_the_decline_is_a_tenth_by_default_and_never_begins_in_the_warmup():
    found = rates(100, schedule="warmup-stable-decay", learning_rate=0.1)
    assert found[90] == pytest.approx(0.1) and found[95] == pytest.approx(0.05) and found[100] == pytest.approx(0)
    short = rates(10, schedule="warmup-stable-decay", decay_iterations=9, learning_rate=0.1, warmup_iterations=5)
    assert short[5] == pytest.approx(0.1) and short[10] == pytest.approx(0)


def named():
    return [
        ("norm.weight", nn.Parameter(torch.ones(2))),
        ("head.weight", nn.Parameter(torch.ones(2, 2))),
        ("body.weight", nn.Parameter(torch.ones(2, 2))),
        ("body.bias", nn.Parameter(torch.ones(2))),
    ]


def test_groups_follow_the_first_pattern_that_matches():
    pairs = named()
    groups = [
        ParameterGroup(names="head.*", weight_decay=0.0, learning_rate_factor=0.5),
        ParameterGroup(names="*.weight", weight_decay=0.3),
    ]
    optimizer = adamw(pairs, Training(weight_decay=0.1, parameter_groups=groups))
    set_learning_rate(optimizer, 0.01)
    found = {id(p): (group["weight_decay"], group["lr"]) for group in optimizer.param_groups for p in group["params"]}
    assert [found[id(parameter)] for _, parameter in pairs] == [(0.3, 0.01), (0.0, 0.005), (0.3, 0.01), (0.0, 0.01)]


def test_a_group_without_a_decay_keeps_the_usual_one():
    pairs = named()
    groups = [ParameterGroup(names="*", learning_rate_factor=2.0)]
    optimizer = adamw(pairs, Training(weight_decay=0.1, parameter_groups=groups))
    found = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert [found[id(parameter)] for _, parameter in pairs] == [0.0, 0.1, 0.1, 0.0]


@pytest.mark.parametrize("patterns", [["nothing.*"], ["*", "head.*"]], ids=["none", "taken before"])
def test_a_pattern_that_matches_nothing_is_refused(patterns):
    groups = [ParameterGroup(names=pattern) for pattern in patterns]
    place = len(patterns) - 1
    with pytest.raises(InputError, match="matches no parameter") as caught:
        adamw(named(), Training(parameter_groups=groups))
    assert str(caught.value).startswith(f"spec.training.parameterGroups[{place}].names: '{patterns[-1]}'")
