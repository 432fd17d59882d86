"""What enters the model is compared by a hash; floats on unlike devices within a bound."""

import pytest
import torch
from heterotp_trainer.boundary.batch_hash import BatchHash
from heterotp_trainer.boundary.exchange import MismatchError, Report, merge_reports
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x, mask=None):
        return self.norm(x)


def test_the_hash_of_a_batch_sees_all_that_enters_the_model_in_training():
    model = Model()
    watched, x = BatchHash(model), torch.randn(4, 3)

    def hash_of(*arguments, **named):
        model(*arguments, **named)
        return watched.take().hash

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
        return watched.take().hash

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
    assert watched.take().hash != 0


def test_micro_batches_count_in_their_order():
    watched, (a, b) = BatchHash(Model()), torch.randn(2, 4, 3)
    hashes = []
    for batch in ((a, b), (b, a), (a, b)):
        watched.add(batch[0])
        watched.add(batch[1])
        hashes.append(watched.take().hash)
    assert hashes[0] == hashes[2] != hashes[1]


def test_a_large_batch_is_sampled_over_its_whole_length():
    watched, large = BatchHash(Model()), torch.zeros(100, 10_000)
    watched.add(large)
    before = watched.take().hash
    large[-1] = 1.0
    watched.add(large)
    assert watched.take().hash != before


def reports(*batches, unlike=True):
    """Return the reports of ranks into whose models these batches entered."""
    found = []
    for batch in batches:
        watched = BatchHash(Model(), unlike=unlike)
        watched.add(batch)
        entered = watched.take()
        found.append(Report(1, batch=entered.hash, batch_norm=entered.norm, batch_signed=entered.signed))
    return found


IMAGES = torch.randn(8, 3, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(8)
ROUNDED = IMAGES * (1 + 1e-6)
OTHERS = {
    "values": (torch.randn(8, 3, 5, generator=torch.Generator().manual_seed(1)), LABELS),
    "order": (IMAGES.flip(0), LABELS),
    "labels": (IMAGES, LABELS.flip(0)),
    "size": (IMAGES[:7], LABELS),
    "nan": (IMAGES * float("nan"), LABELS),
    "complex": (torch.complex(IMAGES, IMAGES), LABELS),
}


def test_floats_that_unlike_devices_computed_may_differ_by_rounding():
    merge_reports(reports((IMAGES, LABELS), (ROUNDED, LABELS)))
    merge_reports(reports((IMAGES.to(torch.complex64), LABELS), (ROUNDED.to(torch.complex64), LABELS)))
    with pytest.raises(MismatchError, match=r"^the batch of ranks \[1\]"):
        merge_reports(reports((IMAGES, LABELS), (ROUNDED, LABELS), unlike=False))


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_another_batch_is_found_on_unlike_devices_too(other):
    with pytest.raises(MismatchError, match=r"^the batch of ranks \[2\] differs from rank 0's: every rank trains on"):
        merge_reports(reports((IMAGES, LABELS), (ROUNDED, LABELS), other))


def test_a_device_behind_its_host_is_read_one_iteration_later():
    watched = BatchHash(Model(), late=True)
    watched.add(IMAGES)
    assert watched.take() == (0, 0.0, 0.0)
    watched.add(LABELS)
    first = watched.take().hash
    assert first != 0
    assert watched.take().hash not in (0, first)
