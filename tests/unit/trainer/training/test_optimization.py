"""Learning rates, clipping, decay groups, probes."""

import math

import pytest
import torch
from heterotp_api.training import Training
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.unit_plan import Plan
from heterotp_trainer.rebalancing.masked_step import step_around
from heterotp_trainer.rebalancing.speed_probe import probe_speed, quantized
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.gradients import clip_gradients
from heterotp_trainer.training.optimizer import adamw
from heterotp_trainer.training.schedules import learning_rate
from torch import nn

TP = TPContext(None, 0, 1, Device(torch.device("cpu"), "cpu"), NullClock(), Plan.even(1, 1, 1))


def test_a_constant_rate_warms_up():
    training = Training(learning_rate=0.1, warmup_iterations=4)
    assert [learning_rate(training, i, 10) for i in range(5)] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1])


def test_a_cosine_ends_at_nothing():
    training = Training(learning_rate=0.1, schedule="cosine", warmup_iterations=2)
    assert learning_rate(training, 2, 12) == pytest.approx(0.1)
    assert learning_rate(training, 7, 12) == pytest.approx(0.05)
    assert learning_rate(training, 12, 12) == pytest.approx(0, abs=1e-12)


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


def test_vectors_do_not_decay():
    matrix, vector = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    groups = adamw([matrix, vector], Training(weight_decay=0.5)).param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert decay == {id(matrix): 0.5, id(vector): 0.0}


def test_probed_speeds_forgive_noise_and_keep_ratios():
    assert quantized([100.0, 101.0, 99.0]) == [1.0, 1.0, 1.0]
    fast, slow = quantized([800.0, 100.0])
    assert fast == 1 and slow == pytest.approx(1 / 8, rel=0.03)


def test_a_probe_measures_something():
    assert probe_speed(TP.device, 8, 8, 8, torch.float32) > 0


def test_a_late_product_does_not_make_the_next_ones_of_a_probe_look_fast():
    class Late(Device):
        debt = 1.0

        def forget_debt(self):
            self.debt = 0.0

        def settle_gemm(self, shape, started, again=lambda part: None):
            owed.append(self.debt)
            self.debt = 1.0

    owed: list[float] = []
    probe_speed(Late(torch.device("cpu"), "late"), 8, 8, 8, torch.float32)
    assert owed and not any(owed)


def stepped(parameter, optimizer, parts=(), gradient=1.0):
    """Step once with gradients that differ from place to place."""
    parameter.grad = gradient * torch.arange(1.0, parameter.numel() + 1).view_as(parameter)
    step_around(optimizer, parts)


def all_of(parameter, optimizer):
    state = {name: value.clone() for name, value in optimizer.state[parameter].items()}
    return {"values": parameter.detach().clone(), **state}


@pytest.mark.parametrize("before", [0, 3], ids=["first-step", "with-momentum"])
@pytest.mark.parametrize(("dim", "ids"), [(1, [0, 3]), (0, [1]), (1, [])], ids=["columns", "rows", "none"])
def test_a_step_around_columns_leaves_them_and_their_state(dim, ids, before):
    mine, plain = (nn.Parameter(torch.ones(3, 4)) for _ in range(2))
    optimizer, other = (adamw([p], Training(learning_rate=0.1, weight_decay=0.5)) for p in (mine, plain))
    for _ in range(before):
        stepped(mine, optimizer)
        stepped(plain, other)
    chosen = torch.tensor(ids, dtype=torch.int64)
    was = all_of(mine, optimizer)
    stepped(mine, optimizer, [(mine, dim, chosen)], gradient=2.0)
    stepped(plain, other, gradient=2.0)
    found, expected = all_of(mine, optimizer), all_of(plain, other)
    assert found.keys() == expected.keys() == {"values", "step", "exp_avg", "exp_avg_sq"}
    for name, wanted in expected.items():
        if name != "step":
            left = was.get(name, torch.zeros_like(wanted)).index_select(dim, chosen)
            wanted.index_copy_(dim, chosen, left)
        assert torch.equal(found[name], wanted), name
    assert torch.equal(mine.detach(), plain.detach()) == (not ids)
