"""The presets of the paper: as large as their names say, and a block of each trains."""

from dataclasses import replace

import pytest
import torch
from heterotp_api.training import PRESETS
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.model.vit import VisionTransformer
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext


def block(preset):
    """Return a model of one block of the preset's width, on one rank."""
    shape = replace(PRESETS[preset], depth=1)
    plan = UnitPlan.even(1, shape.heads, shape.ffn_units)
    tp = TPContext(None, 0, 1, Device(torch.device("cpu"), "cpu"), clock=NullClock(), unit_plan=plan)
    return VisionTransformer(tp, shape, image_size=8, channels=1, classes=10, seed=0)


@pytest.mark.parametrize(("preset", "billions"), [("vit-1b", 1.2), ("vit-3b", 2.7)])
def test_a_preset_is_as_large_as_its_name_and_a_block_of_it_trains(preset, billions):
    model = block(preset)
    inside = sum(p.numel() for p in model.blocks.parameters())
    assert inside * PRESETS[preset].depth / 1e9 == pytest.approx(billions, rel=0.05)
    model(torch.zeros(1, 1, 8, 8)).sum().backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())
