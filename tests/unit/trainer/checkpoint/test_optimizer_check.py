"""Optimizers whose state cannot be cut by units are refused by name; element-wise ones are not."""

import inspect

import pytest
import torch
from heterotp_trainer.checkpoint.optimizer_check import (
    WHOLE_TENSOR,
    check_first_step,
    refuse_other_shapes,
    refuse_strangers,
    refuse_whole_tensor,
)
from heterotp_trainer.training.optimizer import EagerAdamW
from torch import nn

OPTIMIZERS = {
    name: each
    for name, each in vars(torch.optim).items()
    if inspect.isclass(each) and issubclass(each, torch.optim.Optimizer) and each is not torch.optim.Optimizer
}
ELEMENTWISE = {n: each for n, each in OPTIMIZERS.items() if n not in {*WHOLE_TENSOR, "SparseAdam"}} | {"e": EagerAdamW}


class RowStatistics(torch.optim.Optimizer):
    """What a stranger's optimizer with a statistic per row does."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter].setdefault("row_mean", torch.zeros(len(parameter), 1)).add_(1)


def stepped(optimizer, model):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("name", WHOLE_TENSOR)
def test_an_optimizer_that_is_not_element_wise_is_refused_and_so_is_a_subclass(name):
    weight = [nn.Parameter(torch.ones(3, 2))]
    subclass = type("Mine", (OPTIMIZERS[name],), {})
    for shown, optimizer in ((name, OPTIMIZERS[name](weight)), ("Mine", subclass(weight))):
        with pytest.raises(
            ValueError, match=rf"^optimizer {shown}: its .*; units move .*: use .* AdamW.*, SGD"
        ) as told:
            refuse_whole_tensor(optimizer)
        assert "\n" not in str(told.value)


class Stranger(torch.optim.Optimizer):
    """An optimizer whose state has the shape of its parameter, whatever its update does."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter].setdefault("exp_avg", torch.zeros_like(parameter)).add_(1)


def named(name, base=Stranger):
    return type(name, (base,), {})([nn.Parameter(torch.ones(3, 2))])


LIBRARIES = [
    *("Lamb", "LAMB", "FusedLAMB", "DistributedFusedLAMB", "NVLAMB", "LAMB8bit", "Lars", "LARS", "PytorchLARS", "LARC"),
    *("NovoGrad", "FusedNovoGrad", "NvNovoGrad", "AdamP", "SGDP", "Prodigy", "DAdaptAdam", "DAdaptSGD"),
    *("MuonWithAuxAdam", "SingleDeviceMuon", "Shampoo", "DistributedShampoo", "SOAP"),
]


@pytest.mark.parametrize("name", LIBRARIES)
def test_optimizers_of_libraries_that_look_at_whole_tensors_are_refused_by_name(name):
    subclass = type("Mine", (type(named(name)),), {})([nn.Parameter(torch.ones(2))])
    for shown, optimizer in ((name, named(name)), ("Mine", subclass)):
        with pytest.raises(ValueError, match=rf"^optimizer {shown}: it is not element-wise: .*: use .* AdamW") as told:
            refuse_whole_tensor(optimizer)
        assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "name", ["Lion", "FusedLion", "Adan", "LaProp", "ScalarSGD", "LambdaAdam", "AdamW8bit", "Larson"]
)
def test_element_wise_optimizers_of_libraries_pass(name):
    optimizer = named(name)
    (weight,) = optimizer.param_groups[0]["params"]
    refuse_whole_tensor(optimizer)
    check_first_step(optimizer, {"weight": weight})
    assert optimizer._optimizer_step_post_hooks
    optimizer.step()
    assert not optimizer._optimizer_step_post_hooks  # its state was looked at, and accepted


def test_an_optimizer_of_other_parameters_is_refused_and_one_of_a_part_is_not():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    refuse_strangers(torch.optim.SGD(model[1].parameters(), 0.1), model)
    other = torch.optim.SGD([*model.parameters(), nn.Parameter(torch.ones(4, 2))], 0.1)
    with pytest.raises(ValueError, match=r"group 0 of the optimizer has a parameter of shape \(4, 2\) that is not in"):
        refuse_strangers(other, model)


@pytest.mark.parametrize("make", ELEMENTWISE.values(), ids=ELEMENTWISE)
def test_element_wise_optimizers_pass_both_checks(make):
    model = nn.Linear(2, 3)
    optimizer = make(model.parameters())
    refuse_whole_tensor(optimizer)
    check_first_step(optimizer, dict(model.named_parameters()))
    stepped(optimizer, model)
    assert bool(optimizer._optimizer_step_post_hooks) == (not optimizer.state)  # plain SGD has none


def test_state_of_another_shape_is_named_after_the_first_step():
    model = nn.Linear(2, 3)
    optimizer = RowStatistics(model.parameters())
    refuse_whole_tensor(optimizer)
    check_first_step(optimizer, dict(model.named_parameters()))
    words = r"^optimizer RowStatistics: its state row_mean of weight has shape \(3, 1\), the parameter \(3, 2\); units"
    with pytest.raises(ValueError, match=words):
        stepped(optimizer, model)
    with pytest.raises(ValueError, match=words):
        refuse_other_shapes(optimizer, dict(model.named_parameters()))


def test_an_optimizer_without_state_is_checked_until_it_has_some():
    model = nn.Linear(2, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    check_first_step(optimizer, dict(model.named_parameters()))
    stepped(optimizer, model)
    assert not optimizer.state
    optimizer.param_groups[0]["momentum"] = 0.9
    stepped(optimizer, model)
    assert not optimizer._optimizer_step_post_hooks
