"""What must be equal on all ranks is compared: replicas by checksums or outlines."""

import pytest
import torch
from heterotp_trainer.boundary import agreement
from heterotp_trainer.boundary.agreement import checksum, outline, replicated, shape_of
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, mark_sharded
from support.dispatched import Temporaries
from torch import nn


def test_a_checksum_sees_every_change():
    tensor = torch.arange(6.0)
    assert checksum(tensor) == checksum(tensor.clone()) != 0
    assert checksum(tensor.flip(0)) != checksum(tensor)
    nudged = tensor.clone()
    nudged[5] = torch.nextafter(tensor[5], torch.tensor(9.0))
    assert checksum(nudged) != checksum(tensor)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.bool, torch.int64], ids=str)
def test_tensors_of_any_type_and_size_have_a_checksum(dtype):
    odd = torch.tensor([1, 0, 1]).to(dtype)
    other = torch.tensor([1, 1, 0]).to(dtype)
    assert checksum(odd) == checksum(odd.clone()) != checksum(other)
    assert checksum(torch.empty(0, dtype=dtype)) == 0


def test_a_checksum_in_chunks_is_that_of_the_whole(monkeypatch):
    tensor = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    whole, outlined = checksum(tensor), outline(tensor)
    monkeypatch.setattr(agreement, "CHUNK_WORDS", 7)
    assert checksum(tensor) == whole
    torch.testing.assert_close(outline(tensor), outlined)


@pytest.mark.parametrize("summarize", [checksum, outline])
def test_the_temporaries_of_a_summary_are_bounded_whatever_the_size_of_the_tensor(monkeypatch, summarize):
    monkeypatch.setattr(agreement, "CHUNK_WORDS", 1000)
    tensor = torch.randn(50_000)
    with Temporaries(tensor) as temporaries:
        summarize(tensor)
    assert 8 * 1000 <= temporaries.most <= 48 * 1000


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        (lambda t: t + 1e-6 * torch.randn_like(t), True),
        (lambda t: t.flip(0), False),
        (lambda t: torch.randn_like(t), False),
        (lambda t: t * 1.05, False),
        (lambda t: t.index_fill(0, torch.tensor([3]), torch.nan), False),
    ],
    ids=["rounding", "order", "seed", "size", "nan"],
)
def test_outlines_tell_rounding_from_other_values(change, alike):
    torch.manual_seed(0)
    tensor = torch.randn(4096)
    one, other = outline(change(tensor))[None], outline(tensor)[None]
    assert bool(agreement._alike(one, other).all()) == alike


def test_two_tensors_that_are_not_finite_are_alike():
    broken = outline(torch.tensor([1.0, torch.nan]))[None]
    assert bool(agreement._alike(broken, broken).all())


class Model(nn.Module):
    def __init__(self, units=2):
        super().__init__()
        self.norm, self.scale = nn.BatchNorm1d(3), nn.Parameter(torch.ones(3))
        self.shard = mark_sharded(nn.Parameter(torch.ones(units, 3)), ShardSpec("ffn", 0, 1, 6))

    def forward(self, x, mask=None):
        return self.norm(x) * self.scale


def test_replicas_are_parameters_that_are_not_sharded_and_buffers():
    names = ["scale", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    assert list(replicated(Model())) == names


def test_models_are_compared_by_whole_shapes():
    assert shape_of(Model(2)) == shape_of(Model(4)) != shape_of(nn.Linear(3, 3))
