"""Clipping by the norm over the whole model."""

import math

import pytest
import torch
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.gradients import clip_gradients
from torch import nn

TP = TPContext(None, 0, 1, Device(torch.device("cpu"), "cpu"), NullClock(), UnitPlan.even(1, 1, 1))


def test_the_norm_is_clipped_as_torch_does():
    parameters = [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2, 2))]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 5
    theirs = [nn.Parameter(torch.zeros_like(p)) for p in parameters]
    for mine, other in zip(parameters, theirs, strict=True):
        other.grad = mine.grad.clone()
    clip_gradients(parameters, 1.0, TP)
    nn.utils.clip_grad_norm_(theirs, 1.0)
    for mine, other in zip(parameters, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-5, atol=1e-6)
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in parameters))
    assert norm == pytest.approx(1.0, rel=1e-4)


def test_small_gradients_stay():
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([0.3, 0.4])
    clip_gradients([parameter], 1.0, TP)
    assert torch.equal(parameter.grad, torch.tensor([0.3, 0.4]))
