"""The precision of sharded layers: that of the context, whatever enters them and whatever autocast asks for."""

import pytest
import torch
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Zero
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.plans.work_reduction import WorkReduction
from heterotp_trainer.rebalancing.column_assigner import ColumnAssigner
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP

WIDTH, UNITS = 16, 32


def network(dtype, pruned=0):
    """Return a feed-forward network of one rank; pruned: columns that it leaves out."""
    tp = TPContext(None, 0, 1, Device(torch.device("cpu"), "cpu"), NullClock(), UnitPlan.even(1, 1, UNITS), dtype)
    mlp = ParallelMLP(tp, WIDTH, UNITS, name="m", seed=1)
    if pruned:
        assigner = ColumnAssigner(mlp, tp)
        curves = tuple(Curve((0.0, float(each.columns[0])), (0.0, 1.0)) for each in assigner.classes())
        plan = WorkPlan(1, reductions=((0, (WorkReduction(pruned),) * 2),))
        policy = BalancingSettings(strategy="ZERO", zero=Zero(grain=1, selection="Rd"))
        assigner.apply(plan, Costs(assigner.classes(), (curves,), (1,)), policy)
    return mlp


def trained(mlp, x, autocast=False):
    """Return the output, and the gradients of input and parameters."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = mlp(x)
    out.float().square().sum().backward()
    return out.detach(), [x.grad, *(parameter.grad for parameter in mlp.parameters())]


X = torch.randn(2, 3, WIDTH, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("pruned", [0, 4], ids=["whole", "pruned"])
@pytest.mark.parametrize("entering", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layers_take_any_precision_and_return_that_of_the_context(dtype, entering, pruned):
    out, (dx, *others) = trained(network(dtype, pruned), X.to(entering))
    assert (out.dtype, dx.dtype, {each.dtype for each in others}) == (dtype, entering, {torch.float32})
    exact, (_, *rest) = trained(network(torch.float32, pruned), X)
    torch.testing.assert_close(out.float(), exact, rtol=0.05, atol=0.01 * float(exact.abs().max()))
    for found, wanted in zip(others, rest, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.03 * float(wanted.abs().max()))


@pytest.mark.parametrize("pruned", [0, 4], ids=["whole", "pruned"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_changes_nothing_in_the_layers(dtype, pruned):
    out, gradients = trained(network(dtype, pruned), X)
    cast, others = trained(network(dtype, pruned), X, autocast=True)
    assert cast.dtype == out.dtype and torch.equal(cast, out)
    assert all(torch.equal(a, b) for a, b in zip(gradients, others, strict=True))
