"""Random numbers drawn in a sharded region are refused, in whatever way a loop calls the model; elsewhere allowed."""

import pytest
import torch
import torch.nn.functional as F
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.model.checks import PARTS_EVERY, DrawCheck
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from torch import nn
from torch.utils.checkpoint import checkpoint

CPU = torch.device("cpu")
SHARDED = r"^model: encoder\.1\.dropout: Dropout draws random numbers in training \(a dropout\?\): ranks draw unlike"


class Block(nn.Module):
    """A feed-forward network; inside and after it values may be dropped."""

    def __init__(self, name, inside=0.0, after=0.0, functional=0.0):
        super().__init__()
        tp = TPContext(None, 0, 1, Device(CPU, "cpu"), NullClock(), UnitPlan.empty(1))
        self.mlp, self.functional = ParallelMLP(tp, 3, 4, name=name, seed=0), functional
        self.dropout, self.after = nn.Dropout(inside), nn.Dropout(after)

    def forward(self, x):
        hidden = F.dropout(self.dropout(self.mlp.fc1(x)), self.functional, self.training)
        return self.after(self.mlp.fc2(hidden))


class Model(nn.Module):
    def __init__(self, *, recompute=False, **dropped):
        super().__init__()
        self.encoder = nn.Sequential(Block("encoder.0"), Block("encoder.1", **dropped))
        self.head, self.recompute = nn.Linear(3, 1), recompute

    def forward(self, x):
        x = checkpoint(self.encoder, x, use_reentrant=False) if self.recompute else self.encoder(x)
        return self.head(x)

    def loss(self, x):
        return self.head(self.encoder(x)).mean()


CALLS = pytest.mark.parametrize(
    "call", [lambda model, x: model(x), lambda model, x: model.loss(x)], ids=["model", "part"]
)


@CALLS
def test_a_draw_in_a_sharded_region_is_named_by_its_innermost_module(call):
    check = DrawCheck(model := Model(inside=0.5), CPU)
    with pytest.raises(ValueError, match=SHARDED):
        call(model, torch.ones(2, 3))
    assert not check.on_whole


@CALLS
def test_a_function_that_draws_in_a_sharded_region_is_named_by_the_linears_around_it(call):
    DrawCheck(model := Model(functional=0.5), CPU)
    where = r"^model: random numbers are drawn in training between encoder\.1\.mlp\.fc1 and encoder\.1\.mlp\.fc2"
    with pytest.raises(ValueError, match=where):
        call(model, torch.ones(2, 3))


@CALLS
def test_dropout_of_whole_activations_is_allowed_and_noted(call):
    torch.manual_seed(0)
    check, other = DrawCheck(model := Model(after=0.5), CPU), DrawCheck(silent := Model(), CPU)
    for each in (model, silent):
        call(each, torch.ones(2, 3))
    assert check.on_whole and not other.on_whole
    assert check.state_digest() is not None and other.state_digest() is None
    check.iteration_ended(1)
    call(model, torch.ones(2, 3))
    assert not model.encoder[1]._forward_hooks or not model.encoder[1].mlp._forward_hooks


def test_the_digest_follows_the_generator():
    check = DrawCheck(model := Model(after=0.5), CPU)
    torch.manual_seed(1)
    model(torch.ones(2, 3))
    first = check.state_digest()
    assert torch.equal(first, check.state_digest())
    torch.rand(())
    assert not torch.equal(first, check.state_digest())


def test_devices_of_unlike_kinds_must_not_draw_at_all():
    DrawCheck(model := Model(after=0.5), CPU, unlike=True)
    with pytest.raises(ValueError, match=r"encoder\.1\.after: Dropout draws .* devices of unlike kinds draw unlike"):
        model(torch.ones(2, 3))


@CALLS
def test_a_model_that_begins_to_draw_later_is_refused(call):
    check, x = DrawCheck(model := Model(), CPU), torch.ones(2, 3)
    call(model, x)
    check.iteration_ended(1)
    assert not model.encoder[1]._forward_hooks
    model.encoder[1].after.p = 0.5
    with pytest.raises(ValueError, match=r"^model: (encoder: Sequential|Model) draws .* not in the first iteration"):
        call(model, x)
    model.eval()
    call(model, x)


@CALLS
def test_where_whole_activations_are_dropped_a_draw_in_a_region_that_begins_later_is_named_soon(call):
    check, x = DrawCheck(model := Model(after=0.5), CPU), torch.ones(2, 3)
    call(model, x)
    check.iteration_ended(1)
    model.encoder[1].dropout.p = 0.5
    call(model, x)  # only what the loop calls is watched now
    check.iteration_ended(PARTS_EVERY - 1)
    call(model, x)
    check.iteration_ended(PARTS_EVERY)
    with pytest.raises(ValueError, match=SHARDED):
        call(model, x)


def test_parts_are_watched_for_one_iteration():
    check = DrawCheck(model := Model(after=0.5), CPU)
    watched = []
    for iteration in (1, PARTS_EVERY, PARTS_EVERY + 1):
        model(torch.ones(2, 3))
        check.iteration_ended(iteration)
        watched.append(bool(model.encoder[1].mlp.fc1._forward_hooks))
    assert watched == [False, True, False]


def test_a_recomputation_that_ends_inside_of_a_module_leaves_nothing_behind():
    model, x = Model(recompute=True, after=0.5), torch.ones(2, 3, requires_grad=True)
    check = DrawCheck(model, CPU)
    for _ in range(5):
        model(x).mean().backward()
        torch.rand(())  # between two iterations a script may draw
        model.eval()(x)
        model.train()
    assert check.on_whole and not check._entered
    model.encoder[1].dropout.p = 0.5
    with pytest.raises(ValueError, match=SHARDED):
        model(x)
