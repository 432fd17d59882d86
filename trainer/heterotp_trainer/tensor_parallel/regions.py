"""Bracket work that moves with the units, forward and backward.

Phase "attention" for heads, "vocabulary" for its rows, else "unit".
"""

from typing import Any

import torch
from torch import Tensor

from heterotp_trainer.devices.phase_clock import ATTENTION, VOCABULARY, Clock
from heterotp_trainer.plans.unit_plan import Family

PHASE: dict[Family, str] = {"heads": ATTENTION, "ffn": "unit", "vocab": VOCABULARY}


class _Switch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: Clock, ahead: str, back: str) -> Tensor:
        ctx.clock, ctx.back = clock, back
        clock.switch(ahead)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        ctx.clock.switch(ctx.back)
        return grad, None, None, None


def enter_unit(x: Tensor, clock: Clock, family: Family) -> Tensor:
    """Return x; forward enters the unit phase here, backward leaves it."""
    entered: Tensor = _Switch.apply(x, clock, PHASE[family], "fixed")
    return entered


def leave_unit(x: Tensor, clock: Clock, family: Family) -> Tensor:
    """Return x; forward leaves the unit phase here, backward enters it."""
    left: Tensor = _Switch.apply(x, clock, "fixed", PHASE[family])
    return left
