"""Speeds probed before training, and beside it on a rank with too little work to show its speed."""

from dataclasses import replace

import pytest
import torch
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.devices.slowdown import Slowdown
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve, Line, LinearClass, Link, UnitMoveCost
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.rebalancing.speed_probe import CALLS, PROBE_EVERY, PaceProbe, probe_speed, quantized
from heterotp_trainer.tensor_parallel.context import TPContext

WIDTH, UNITS, RANKS = 8, 48, 3
EVEN = UnitPlan.even(RANKS, RANKS, UNITS)
SKEWED = UnitPlan.from_counts([1, 1, 1], [20, 20, 8])


def context(rank=0, plan=EVEN):
    return TPContext(None, rank, RANKS, Device(torch.device("cpu"), "cpu"), NullClock(), plan)


def costs(plan=EVEN, slope=1e-3):
    linears = LinearClass("fc", "column", (WIDTH,) * RANKS, (16,) * RANKS, 4, 1, "ffn", 1).owned_by(plan)
    curve = Curve((0.0, 1.0, float(WIDTH)), (0.0, 1e-4, 1e-3), 16)
    return Costs(
        (linears,), ((curve,),) * RANKS, (1,) * RANKS, Link(piece=Line(0.0, slope)), unit_move=UnitMoveCost(0.0, 10.0)
    )


def test_probed_speeds_forgive_noise_and_keep_ratios():
    assert quantized([100.0, 101.0, 99.0]) == [1.0, 1.0, 1.0]
    fast, slow = quantized([800.0, 100.0])
    assert fast == 1 and slow == pytest.approx(1 / 8, rel=0.03)


def test_a_probe_measures_something():
    assert probe_speed(context().device, 8, 8, 8, torch.float32) > 0


class Late(Device):
    """A device whose every product ends too late, so that the next one is shortened; owed: of each product."""

    def __init__(self):
        super().__init__(torch.device("cpu"), "late")
        self.debt, self.owed = 1.0, []

    def forget_debt(self):
        self.debt = 0.0

    def settle_gemm(self, shape, started, again=lambda part: None):
        self.owed.append(self.debt)
        self.debt = 1.0


def test_a_late_product_does_not_make_the_next_ones_of_a_probe_look_fast():
    device = Late()
    probe_speed(device, 8, 8, 8, torch.float32)
    assert device.owed and not any(device.owed)


def test_a_late_product_of_the_model_does_not_make_a_probe_beside_training_look_fast():
    tp = context()
    tp.device = Late()
    assert PaceProbe(tp).take(costs()) > 0
    assert len(tp.device.owed) == 3 * (1 + CALLS) and not any(tp.device.owed[::3])  # three products each


def test_only_a_rank_with_hardly_any_work_is_probed(monkeypatch):
    taken = []
    monkeypatch.setattr(PaceProbe, "take", lambda self, costs: taken.append(1) or 2.5)
    few = UnitPlan.from_counts([1, 1, 1], [24, 23, 1])
    busy, idle = PaceProbe(context()), PaceProbe(context(rank=2, plan=few))
    for _ in range(2 * PROBE_EVERY):
        busy.update(costs())
    assert (busy.pace_ratio, taken) == (0.0, [])
    for _ in range(2 * PROBE_EVERY):
        idle.update(costs(few))
    assert idle.pace_ratio == 2.5 and len(taken) == 3  # at once, then now and then
    idle.update(costs(EVEN))
    assert idle.pace_ratio == 0.0


def test_a_probe_sees_an_injected_slow_down_and_leaves_its_count_alone():
    tp, slept = context(), []
    clock = iter(range(1000))
    tp.device.slowdown = Slowdown(4.0, "sleep", now=lambda: next(clock), sleep=slept.append)
    tp.device.slowdown.own_seconds = 7.0
    assert PaceProbe(tp).take(costs()) > 0
    assert len(slept) == 3 * (1 + CALLS) and tp.device.slowdown.own_seconds == 7.0  # three products each


def test_a_probe_without_a_reference_has_no_ratio():
    mute = replace(costs(), curves=((Curve((0.0, 1.0), (0.0, 0.0), 16),),) * RANKS)
    assert PaceProbe(context()).take(mute) == 0.0
