"""Twenty steps of AdamW with accumulation, recomputation, clipping and moves give the losses of the plain model."""

import pytest
from support.ranks.architectures import CONFIGS

BOUNDS = {"fp32": 1e-5, "bf16": 5e-3}  # of losses, relative to the plain model's
OF_NORMS = {"fp32": 1e-3, "bf16": 5e-2}


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("architecture", CONFIGS)
def test_losses_are_those_of_the_plain_model(gang, architecture, precision):
    found = gang("twenty_steps.py", 3)[0][precision][architecture]
    assert 0 < found["loss"] <= BOUNDS[precision]
    assert found["norm"] <= OF_NORMS[precision] and found["clipped"] > 0
