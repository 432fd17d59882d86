"""The precision of an exported checkpoint."""

from types import SimpleNamespace

import pytest
import torch
from heterotp_trainer.training.finetuned import exported_type


@pytest.mark.parametrize(
    ("named", "exported"),
    [(torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32), (torch.float32, torch.float32), (None, None)],
)
def test_bf16_stays_what_would_lose_range_does_not(named, exported):
    assert exported_type(SimpleNamespace(dtype=named)) == (exported or torch.float32)
    assert exported_type(SimpleNamespace()) == torch.float32
