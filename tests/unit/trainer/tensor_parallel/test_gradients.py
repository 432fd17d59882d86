"""Clipping by the norm over the whole model."""

import math

import pytest
import torch
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.gradients import gradient_norm, refuse_plain_clipping, scale_gradients
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, mark_sharded
from torch import nn

SPEC = ShardSpec("ffn", 0, 1, 6)
TP = TPContext(None, 0, 1, Device(torch.device("cpu"), "cpu"), NullClock(), UnitPlan.even(1, 1, 1))


def clip(parameters, limit):
    norm = gradient_norm(parameters, TP)
    scale_gradients(parameters, min(1.0, limit / norm))


def test_the_norm_is_clipped_as_torch_does():
    parameters = [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2, 2))]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 5
    theirs = [nn.Parameter(torch.zeros_like(p)) for p in parameters]
    for mine, other in zip(parameters, theirs, strict=True):
        other.grad = mine.grad.clone()
    clip(parameters, 1.0)
    nn.utils.clip_grad_norm_(theirs, 1.0)
    for mine, other in zip(parameters, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-5, atol=1e-6)
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in parameters))
    assert norm == pytest.approx(1.0, rel=1e-4)


def test_small_gradients_stay():
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([0.3, 0.4])
    clip([parameter], 1.0)
    assert torch.equal(parameter.grad, torch.tensor([0.3, 0.4]))


@pytest.mark.parametrize("others", [torch.float64, torch.float32], ids=["float64", "float64 and fp32"])
def test_the_norm_of_a_model_in_float64_is_exact(others):
    parameters = [nn.Parameter(torch.zeros(1, dtype=each)) for each in (torch.float64, others)]
    for parameter, value in zip(parameters, (1.0, 2.0**-20), strict=True):
        parameter.grad = torch.full_like(parameter, value)
    assert gradient_norm(parameters, TP) == math.sqrt(1 + 2.0**-40) > 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_not_finite_makes_the_norm_so(value):
    parameters = [nn.Parameter(torch.zeros(3)), mark_sharded(nn.Parameter(torch.zeros(3)), SPEC)]
    for broken in parameters:
        for parameter in parameters:
            parameter.grad = torch.ones(3)
        broken.grad[1] = value
        assert not math.isfinite(gradient_norm(parameters, TP))


def test_a_loss_that_is_not_finite_makes_the_norm_so():
    assert gradient_norm([], TP, torch.tensor(2.0)) == 0.0
    assert math.isnan(gradient_norm([], TP, torch.tensor(math.inf)))


def test_torchs_own_clipping_is_refused_for_shards_and_stays_for_the_rest():
    clip_grad_norm_ = nn.utils.clip_grad_norm_  # as a script imports it, before any session
    refuse_plain_clipping()
    refuse_plain_clipping()
    plain = nn.Parameter(torch.zeros(2))
    plain.grad = torch.tensor([3.0, 4.0])
    assert clip_grad_norm_([plain], 1.0) == 5.0
    assert torch.allclose(plain.grad, torch.tensor([0.6, 0.8]))
    shard = mark_sharded(nn.Parameter(torch.zeros(2)), SPEC)
    shard.grad = torch.ones(2)
    with pytest.raises(ValueError, match=r"clip_grad_norm_: it sees only the units of this rank.*session\.step"):
        clip_grad_norm_(iter([plain, shard]), 1.0)
