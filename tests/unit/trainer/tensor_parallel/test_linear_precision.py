"""Sharded linears compute in the precision of the context, whatever the activations around them have."""

import pytest
import torch
import torch.nn.functional as F
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from torch import nn

WIDTH = 8


def mlp(dtype):
    tp = TPContext(None, 0, 1, Device(torch.device("cpu"), "cpu"), NullClock(), UnitPlan.empty(1), dtype)
    return ParallelMLP(tp, WIDTH, 16, name="mlp", seed=0)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_a_residual_stream_of_fp32_passes_layers_of_bf16(training):
    layers, norm = mlp(torch.bfloat16).train(training), nn.LayerNorm(WIDTH)
    x = torch.randn(3, WIDTH)
    hidden = layers.fc1(norm(x))
    out = layers.fc2(F.gelu(hidden.float()))  # code between the linears may return fp32, as a rotation by fp32 angles
    assert (hidden.dtype, out.dtype) == (torch.bfloat16, torch.bfloat16)
    (x + out).square().sum().backward()
    assert {each.grad.dtype for each in (*layers.parameters(), *norm.parameters())} == {torch.float32}
    torch.testing.assert_close(out.float(), mlp(torch.float32)(norm(x)), atol=2e-3, rtol=0.05)
