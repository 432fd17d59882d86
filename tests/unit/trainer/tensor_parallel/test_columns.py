"""Choices of columns do what plain indexing does, by blocks as well."""

import pytest
import torch
from heterotp_trainer.tensor_parallel.columns import ColumnSet
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def choices(draw):
    """Draw a choice: whole blocks, or columns that only look like some."""
    grain, blocks = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 6))
    total = grain * blocks + draw(st.sampled_from([0, 0, 1])) % max(2, grain)
    if draw(st.booleans()):
        numbers = draw(st.lists(st.integers(0, blocks - 1), unique=True))
        return ColumnSet.of_blocks(torch.tensor(numbers, dtype=torch.int64), total, grain)
    ids = sorted(draw(st.lists(st.integers(0, total - 1), unique=True)))
    return ColumnSet(torch.tensor(ids, dtype=torch.int64), total, grain)


def matrix(rows, columns, first=0):
    return torch.arange(float(first), float(first + rows * columns)).view(rows, columns)


@given(choices(), st.integers(0, 3), st.booleans())
def test_gather_put_and_fill_are_plain_indexing(chosen, rows, strided):
    x = matrix(chosen.total, rows).t() if strided else matrix(rows, chosen.total)
    values = matrix(rows, len(chosen), first=1000)
    assert torch.equal(chosen.gather(x), x[:, chosen.ids])
    put, filled, x_put, x_filled = (x.contiguous().clone() for _ in range(4))
    chosen.put(put, values)
    chosen.fill(filled, -1.0)
    x_put[:, chosen.ids] = values
    x_filled[:, chosen.ids] = -1
    assert torch.equal(put, x_put) and torch.equal(filled, x_filled)


@given(choices())
def test_the_rest_are_the_columns_not_chosen(chosen):
    rest = chosen.rest
    assert sorted([*chosen.ids.tolist(), *rest.ids.tolist()]) == list(range(chosen.total))
    assert rest.ids.tolist() == sorted(rest.ids.tolist()) and len(rest) + len(chosen) == chosen.total
    assert rest.total == chosen.total and torch.equal(rest.rest.ids, chosen.ids)
    x = matrix(2, chosen.total)
    assert torch.equal(rest.gather(x), x[:, rest.ids])


@given(choices(), st.data())
def test_a_part_is_a_slice_of_the_choice(chosen, data):
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(chosen))] * 2)))
    x = matrix(3, chosen.total)
    assert torch.equal(chosen.part(start, stop).gather(x), chosen.gather(x)[:, start:stop])


@pytest.mark.parametrize("grain", [1, 4])
def test_blocks_are_in_ascending_order(grain):
    chosen = ColumnSet.of_blocks(torch.tensor([2, 0]), 3 * grain, grain)
    assert chosen.ids.tolist() == [*range(grain), *range(2 * grain, 3 * grain)]


@pytest.mark.parametrize(
    ("ids", "total", "moved"),
    [([0, 1, 4, 5], 6, [0, 2]), ([1, 2], 6, None), ([0, 1, 3, 4], 6, None), ([0, 1, 2], 6, None), ([0, 1], 5, None)],
    ids=["whole", "shifted", "one-shifted", "half-a-block", "odd-total"],
)
def test_only_whole_blocks_are_moved_as_slices(ids, total, moved):
    blocks = ColumnSet(torch.tensor(ids), total, 2)._blocks
    assert (None if blocks is None else blocks.tolist()) == moved
