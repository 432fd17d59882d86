"""A mirror makes the update of its owner, and hands its units over."""

import copy

import pytest
import torch
from heterotp_trainer.membership.succession import inherited
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.protection.mirrors import Mirror, Mirrors
from heterotp_trainer.tensor_parallel.unit_spec import ffn, mark_sharded
from heterotp_trainer.training.optimizer import EagerAdamW
from support.contexts import contexts
from torch import nn


def owner(plan, rank, seed=0):
    """Return the sharded parameters of a rank and an optimizer with state."""
    generator, parts = torch.Generator().manual_seed(seed), ffn(plan.total("ffn"))
    whole = {
        "l.fc1.weight": torch.randn(8, 4, generator=generator),
        "l.fc2.weight": torch.randn(4, 8, generator=generator),
    }
    units = plan.owned("ffn", rank)
    named = {
        name: mark_sharded(nn.Parameter(parts[name.split(".")[1]].cut(tensor, units)), parts[name.split(".")[1]])
        for name, tensor in whole.items()
    }
    optimizer = EagerAdamW([{"params": list(named.values()), "weight_decay": 0.1}, {"params": []}], lr=0.01)
    for parameter in named.values():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return named, optimizer


def mirrored(plan, rank, ward):
    """Return a rank's mirrors, filled with the state of its ward as `refresh` does."""
    mine, optimizer = owner(plan, rank)
    theirs, their_optimizer = owner(plan, ward)
    mirror = Mirror(mine, optimizer, plan, ward)
    with torch.no_grad():
        for name, parameter in theirs.items():
            mirror.parameters[name].copy_(parameter)
            for key, value in their_optimizer.state[parameter].items():
                mirror.optimizer.state[mirror.parameters[name]][key] = copy.deepcopy(value)
    return mine, optimizer, theirs, their_optimizer, mirror


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_a_mirror_makes_the_update_of_its_owner_bit_by_bit(factor):
    plan = UnitPlan.from_counts([0, 0], [3, 5])
    _, settings, theirs, their_optimizer, mirror = mirrored(plan, 0, 1)
    for group in (*settings.param_groups, *their_optimizer.param_groups):
        group["lr"] = 0.003
    for _ in range(3):
        gradients = [torch.randn_like(p) for p in theirs.values()]
        mirror.buffer().copy_(torch.cat([torch.ones(2), *(each.reshape(-1) for each in gradients)]))
        mirror.update(settings, factor)
        for parameter, gradient in zip(theirs.values(), gradients, strict=True):
            parameter.grad = gradient * factor
        their_optimizer.step()
    for name, parameter in theirs.items():
        assert torch.equal(mirror.parameters[name], parameter)
        for key in ("exp_avg", "exp_avg_sq", "step"):
            twin = mirror.optimizer.state[mirror.parameters[name]][key]
            assert torch.equal(twin, their_optimizer.state[parameter][key])


def test_a_parameter_without_gradient_is_left_out():
    plan = UnitPlan.from_counts([0, 0], [3, 5])
    _, settings, theirs, _, mirror = mirrored(plan, 0, 1)
    count = sum(p.numel() for p in theirs.values())
    mirror.buffer().copy_(torch.cat([torch.tensor([0.0, 1.0]), torch.ones(count)]))
    mirror.update(settings, 1.0)
    first, second = theirs
    assert torch.equal(mirror.parameters[first], theirs[first])
    assert not torch.equal(mirror.parameters[second], theirs[second])


@pytest.mark.parametrize("lost", [0, 1])
def test_units_of_a_lost_rank_are_taken_over_with_their_state(lost):
    plan = UnitPlan.from_counts([0, 0], [3, 5])
    heir = 1 - lost
    mine, optimizer, _, _, mirror = mirrored(plan, heir, lost)
    tp = contexts((1.0, 1.0))[heir]
    tp.unit_plan = plan
    mirrors = Mirrors(tp, mine, optimizer, None, (1, 0))
    mirrors._held = {lost: mirror}
    held = inherited(plan, {lost: heir}, [heir])
    mirrors.take_over([lost], held, 0)
    whole, whole_optimizer = owner(held, 0)
    for name, parameter in whole.items():
        assert torch.equal(mine[name], parameter)
        for key in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(optimizer.state[mine[name]][key], whole_optimizer.state[parameter][key])
