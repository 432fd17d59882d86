"""A whole linear becomes the parts of the ranks: together they hold its weights, and compute what it computes."""

import pytest
import torch
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
from heterotp_trainer.tensor_parallel.unit_spec import grouped_heads, shard_spec
from support.contexts import contexts
from torch import nn

WIDTH, GROUPS, QUERIES, SIZE = 6, 4, 2, 3
OUT = GROUPS * QUERIES * SIZE
PARTS = grouped_heads(GROUPS, QUERIES, SIZE)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_column_parts_hold_the_outputs_of_their_units(bias):
    whole = nn.Linear(WIDTH, OUT, bias=bias)
    layers = [ColumnParallelLinear.of(whole, tp, PARTS["query"], name="query") for tp in contexts()]
    assert [len(layer.weight) for layer in layers] == [2 * QUERIES * SIZE, 2 * QUERIES * SIZE, 0]
    x = torch.randn(5, WIDTH)
    torch.testing.assert_close(torch.cat([layer(x) for layer in layers], dim=-1), whole(x))
    assert all(shard_spec(layer.weight) == PARTS["query"] for layer in layers)


def test_row_parts_hold_the_inputs_of_their_units_and_the_whole_bias():
    whole = nn.Linear(OUT, WIDTH)
    layers = [RowParallelLinear.of(whole, tp, PARTS["proj"], name="proj") for tp in contexts()]
    x = torch.randn(5, OUT)
    parts = x.split([layer.weight.shape[1] for layer in layers], dim=-1)
    summed = sum(layer(part) - whole.bias for layer, part in zip(layers, parts, strict=True)) + whole.bias
    torch.testing.assert_close(summed, whole(x))
    assert all(torch.equal(layer.bias, whole.bias) and shard_spec(layer.bias) is None for layer in layers)


@pytest.mark.parametrize(
    ("make", "part", "linear", "what"),
    [
        (ColumnParallelLinear, "key", nn.Linear(WIDTH, 10), "the linear has 10 outputs, but 4 units of 3 make 12"),
        (RowParallelLinear, "proj", nn.Linear(20, WIDTH), "the linear has 20 inputs, but 4 units of 6 make 24"),
    ],
    ids=["outputs", "inputs"],
)
def test_a_linear_of_another_size_is_refused_by_name(make, part, linear, what):
    with pytest.raises(ValueError, match=rf"layer 'odd': {what}: both must be equal"):
        make.of(linear, contexts()[0], PARTS[part], name="odd")


def test_no_number_is_drawn_from_torchs_generator():
    whole = nn.Linear(WIDTH, OUT)
    before = torch.get_rng_state()
    ColumnParallelLinear.of(whole, contexts()[0], PARTS["query"], name="query")
    assert torch.equal(before, torch.get_rng_state())
