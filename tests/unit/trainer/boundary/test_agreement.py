"""What must be equal on all ranks is compared: replicas by checksums or outlines, batches by a hash."""

import pytest
import torch
from heterotp_trainer.boundary import agreement
from heterotp_trainer.boundary.agreement import BatchHash, checksum, outline, replicated, shape_of
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, mark_sharded
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


def test_the_hash_of_a_batch_sees_all_that_enters_the_model_in_training():
    model = Model()
    watched, x = BatchHash(model), torch.randn(4, 3)

    def hash_of(*arguments, **named):
        model(*arguments, **named)
        return watched.take()

    assert hash_of(x) == hash_of(x.clone()) != 0
    assert hash_of(x) != hash_of(x + 1)
    assert hash_of(x, mask=torch.ones(2)) != hash_of(x, mask=torch.zeros(2))
    assert hash_of(x, mask={"a": [torch.ones(2)]}) == hash_of(x, mask=torch.ones(2))
    model.eval()
    assert hash_of(x) == 0


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.table = nn.Linear(3, 3), nn.Linear(3, 3), nn.Embedding(4, 3)


LOOPS = {
    "its first part": lambda model, x: model.second(model.first(x)),
    "after a parameter": lambda model, x: model.second(
        model.first(x * model.first.weight[0]) + model.table(x[:, 0].long())
    ),
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_batch_that_enters_a_part_of_the_model_is_hashed_without_what_was_computed(loop):
    model = Parts()
    watched, x = BatchHash(model), torch.rand(2, 3)

    def hash_of(x):
        loop(model, x)
        return watched.take()

    before = hash_of(x)
    with torch.no_grad():
        model.first.weight += 1e-6  # unlike devices round differently
    assert hash_of(x) == before != 0
    assert hash_of(x + 1) != before
    assert len(watched._parts) == 1
    model.eval()
    assert hash_of(x) == 0


UNUSUAL = {
    "COO": lambda: torch.eye(3).to_sparse(),
    "CSR": lambda: torch.eye(3).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "complex": lambda: torch.ones(3, dtype=torch.complex64).conj(),
    "negative": lambda: torch.ones(3, dtype=torch.complex64).conj().imag,
    "scalar": lambda: torch.tensor(2.0),
    "expanded": lambda: torch.ones(1).expand(4, 5),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
    "meta": lambda: torch.ones(3, device="meta"),
}


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.parametrize("name", UNUSUAL)
def test_no_kind_of_tensor_stops_the_forward(name):
    watched = BatchHash(Model())
    watched.add({"other": torch.ones(2), "this": UNUSUAL[name]()})
    assert watched.take() != 0


def test_micro_batches_count_in_their_order():
    watched, (a, b) = BatchHash(Model()), torch.randn(2, 4, 3)
    hashes = []
    for batch in ((a, b), (b, a), (a, b)):
        watched.add(batch[0])
        watched.add(batch[1])
        hashes.append(watched.take())
    assert hashes[0] == hashes[2] != hashes[1]


def test_a_large_batch_is_sampled_over_its_whole_length():
    watched, large = BatchHash(Model()), torch.zeros(100, 10_000)
    watched.add(large)
    before = watched.take()
    large[-1] = 1.0
    watched.add(large)
    assert watched.take() != before
