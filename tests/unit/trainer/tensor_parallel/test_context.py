"""Layers declare their units: the first one of a kind decides on the shares, the others must fit."""

import pytest
import torch
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.attention import ParallelAttention
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.tensor_parallel.unit_spec import grouped_heads

WIDTH = 12


def context(ranks=3, rank=0, speeds=()):
    device = Device(torch.device("cpu"), "cpu")
    return TPContext(None, rank, ranks, device, NullClock(), UnitPlan.empty(ranks), speeds=speeds)


def test_the_first_layer_of_a_kind_decides_on_its_shares_by_speed():
    tp = context(speeds=(1.0, 1.0, 0.25))
    ParallelMLP(tp, WIDTH, 36, name="mlp", seed=0)
    assert tp.unit_plan.counts("ffn") == (16, 16, 4)
    assert tp.unit_plan.total("heads") == 0
    ParallelAttention(tp, WIDTH, 6, name="attention", seed=0)
    assert tp.unit_plan == UnitPlan.from_speeds([1.0, 1.0, 0.25], 6, 36)


def test_layers_get_the_units_of_their_rank():
    first, last = context(rank=0), context(rank=2)
    layers = [ParallelMLP(tp, WIDTH, 7, name="mlp", seed=0) for tp in (first, last)]
    assert [len(layer.fc1.weight) for layer in layers] == [3, 2]


def test_a_layer_of_another_size_is_refused_by_both_names():
    tp = context()
    ParallelMLP(tp, WIDTH, 36, name="blocks.0", seed=0)
    message = r"layer 'blocks\.1\.fc1': 48 hidden units, but layer 'blocks\.0\.fc1' has 36: all layers of one kind"
    with pytest.raises(ValueError, match=message):
        ParallelMLP(tp, WIDTH, 48, name="blocks.1", seed=0)


def test_a_name_used_twice_is_refused():
    tp = context()
    kept = ParallelMLP(tp, WIDTH, 36, name="mlp", seed=0)
    with pytest.raises(ValueError, match=r"layer 'mlp\.fc1': another layer has this name"):
        ParallelMLP(tp, WIDTH, 36, name="mlp", seed=0)
    assert kept.fc1.name == "mlp.fc1"


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match=r"layer 'attention': 5 heads do not divide the width 12"):
        ParallelAttention(context(), WIDTH, 5, name="attention", seed=0)


def test_the_names_of_a_model_that_was_given_up_are_free_again():
    tp = context()
    given_up = ParallelMLP(tp, WIDTH, 36, name="mlp", seed=0)
    given_up.itself = [given_up]  # only the garbage collector finds it
    del given_up
    assert ParallelMLP(tp, WIDTH, 36, name="mlp", seed=0).fc1.name == "mlp.fc1"


@pytest.fixture
def attention():
    """The linears of a grouped-query attention on a rank that owns all units."""
    tp, parts = context(ranks=1), grouped_heads(2, 2, 3)
    linears = {name: ColumnParallelLinear(tp, parts[name], WIDTH, name=name, seed=0) for name in ("query", "key")}
    return {**linears, "proj": RowParallelLinear(tp, parts["proj"], WIDTH, name="proj", seed=0)}


@pytest.mark.parametrize("recompute", [False, True], ids=["plain", "recomputed"])
def test_backward_enters_every_column_linear_before_a_row_linear(attention, recompute):
    x = torch.randn(5, WIDTH, requires_grad=True)

    def block(x):
        attention["key"](x)  # in no graph
        return attention["proj"](attention["query"](x))

    out = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if recompute else block(x)
    out.sum().backward()
    key = attention["key"]
    assert key.weight.grad.shape == key.weight.shape
    assert not key.weight.grad.any() and not key.bias.grad.any()
    assert attention["query"].bias.grad.any()


def test_a_second_backward_does_not_enter_the_first_ones_layers(attention):
    x, weight = torch.randn(5, WIDTH), attention["query"].weight
    found = []
    for _ in range(2):  # two micro-batches; the second must not lead into the freed graph of the first
        attention["proj"](attention["query"](x)).sum().backward()
        found.append(weight.grad.clone())
    assert found[0].any()
    torch.testing.assert_close(found[1], 2 * found[0])


def test_an_evaluation_leaves_no_links_behind(attention):
    with torch.no_grad():
        attention["key"](torch.randn(5, WIDTH))
    assert attention["key"].tp.links.take() == ()
