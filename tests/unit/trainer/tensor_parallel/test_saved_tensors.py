"""What a pruned linear keeps from forward to backward: numbers of columns, and no copy of the kept ones."""

import pytest
import torch
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.column_partition import ColumnPartition
from heterotp_trainer.tensor_parallel.columns import ColumnSet
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from torch.autograd.graph import saved_tensors_hooks

WIDTH, UNITS, ROWS, GRAIN = 64, 128, 40, 4


def mlp(dtype=torch.float32):
    tp = TPContext(None, 0, 1, Device(torch.device("cpu"), "cpu"), NullClock(), UnitPlan.empty(1), dtype)
    return ParallelMLP(tp, WIDTH, UNITS, name="mlp", seed=0)


def prune(linear, gamma):
    columns = linear.weight.shape[1]
    pruned = ColumnSet.of_blocks(torch.arange(int(gamma * columns) // GRAIN), columns, GRAIN)
    linear.partition = ColumnPartition(pruned.rest, pruned)


def saved(linear, x, calls=1):
    """Return the bytes of all tensors that are saved, and those of distinct memory beside parameters and input."""
    kept = []

    def pack(tensor):
        kept.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        outs = [linear(x) for _ in range(calls)]
    known = {each.untyped_storage().data_ptr() for each in (*linear.parameters(), x)}
    memory = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in kept}
    del outs
    return sum(each.nbytes for each in kept), sum(size for place, size in memory.items() if place not in known)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("gamma", [0.25, 0.5, 0.9])
@pytest.mark.parametrize("which", ["fc1", "fc2"], ids=["column-parallel", "row-parallel"])
def test_a_pruned_linear_saves_no_more_than_the_plain_one(which, gamma, dtype):
    linear = getattr(mlp(dtype), which)
    x = torch.randn(ROWS, linear.weight.shape[1], requires_grad=True).to(dtype)
    plain, beside = saved(linear, x)
    prune(linear, gamma)
    pruned, copies = saved(linear, x)
    assert pruned <= plain
    assert copies == beside == 0


def test_linears_of_one_input_share_it_when_they_are_pruned():
    """As query, key and value: a copy of three quarters of X for each of them would be more than X."""
    linear, x = mlp().fc1, torch.randn(ROWS, WIDTH, requires_grad=True)
    prune(linear, 0.25)
    assert saved(linear, x, calls=3)[1] == 0


def test_the_columns_are_those_of_the_forward_pass():
    linear, x = mlp().fc1, torch.randn(ROWS, WIDTH, requires_grad=True)
    prune(linear, 0.5)
    out = linear(x)
    linear.partition = None
    out.sum().backward()
    assert not linear.weight.grad[:, : WIDTH // 2].any() and linear.weight.grad[:, WIDTH // 2 :].any()
