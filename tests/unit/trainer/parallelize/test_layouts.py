"""How a model holds a matrix, and how units are cut from it: any sections, sizes and owners."""

import torch
from heterotp_trainer.parallelize.pretrained import read_units
from heterotp_trainer.parallelize.roles import Layout
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec
from hypothesis import given
from hypothesis import strategies as st


class Stored:
    """A whole tensor as safetensors gives access to it: a shape, and slices."""

    def __init__(self, tensor):
        self.tensor = tensor

    def get_shape(self):
        return list(self.tensor.shape)

    def __getitem__(self, index):
        return self.tensor[index]


@st.composite
def matrices(draw):
    """A whole tensor with its spec and layout, and some ranges of its units."""
    units, rows, other = (draw(st.integers(1, 6)) for _ in range(3))
    sections = draw(st.sampled_from([1, 2, 3]))
    dim, bias = draw(st.integers(0, 1)), draw(st.booleans())
    layout = Layout(sections if dim == 0 else 1, draw(st.booleans()))
    spec = ShardSpec("heads", dim, rows * layout.sections, units)
    cut = units * spec.rows_per_unit
    shape = (cut,) if bias and dim == 0 else (cut, other) if (dim == 0) != layout.transposed else (other, cut)
    chosen = sorted(draw(st.sets(st.integers(0, units - 1))))
    return torch.arange(torch.Size(shape).numel()).view(shape), spec, layout, tuple((u, u + 1) for u in chosen)


@given(matrices())
def test_one_unit_after_another_and_back_is_the_same_matrix(drawn):
    whole, spec, layout, _ = drawn
    assert torch.equal(layout.of_model(layout.canonical(whole, spec), spec), whole)


@given(matrices())
def test_units_that_are_read_are_those_that_are_cut(drawn):
    """Only slices are read from the file; cutting takes the whole matrix."""
    whole, spec, layout, ranges = drawn
    owned = [unit for start, stop in ranges for unit in range(start, stop)]
    wanted = spec.cut(layout.canonical(whole, spec), owned)
    found = read_units(Stored(whole), spec, layout, ranges)
    assert found.shape == wanted.shape and torch.equal(found, wanted)


@given(matrices())
def test_a_section_holds_its_part_of_every_unit(drawn):
    """[all q | all k | all v] is [q, k and v of unit 0 | of unit 1 | ...], one unit after another."""
    whole, spec, layout, _ = drawn
    if spec.dim == 1:
        return
    turned = whole.t() if layout.transposed and whole.dim() == 2 else whole
    parts = [section.chunk(spec.total_units) for section in turned.chunk(layout.sections)]
    by_unit = [part[unit] for unit in range(spec.total_units) for part in parts]
    assert torch.equal(layout.canonical(whole, spec), torch.cat(by_unit))
