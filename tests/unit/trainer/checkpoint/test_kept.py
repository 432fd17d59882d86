"""What session.keep takes and what it refuses."""

import copy
import itertools

import pytest
import torch
from heterotp_trainer.checkpoint.kept import Kept
from heterotp_trainer.tensor_parallel.unit_spec import ffn, mark_sharded
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

SCHEDULE = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), 2)
PAIRS = TensorDataset(torch.arange(6))
SHARDED = nn.Linear(2, 3)
mark_sharded(SHARDED.weight, ffn(3)["fc1"])
REFUSED = {
    "taken": ("taken", SCHEDULE, r"^session\.keep\('taken', StepLR\): another object has this name"),
    "no name": ("", SCHEDULE, r"the name must be a text that is not empty"),
    "no state": ("a", object(), r"^session\.keep\('a', object\): it needs state_dict\(\) and load_state_dict"),
    "own sampler": (
        "a",
        DataLoader(PAIRS, sampler=[1, 0]),
        r"^session\.keep\('a', DataLoader\): only one with torch's",
    ),
    "own batches": ("a", DataLoader(PAIRS, batch_sampler=[[1], [0]]), "only one with torch's own order of samples"),
    "with replacement": (
        "a",
        DataLoader(PAIRS, sampler=RandomSampler(PAIRS, replacement=True)),
        "draws with replacement, or a part",
    ),
    "persistent workers": (
        "a",
        DataLoader(PAIRS, shuffle=True, generator=torch.Generator(), num_workers=1, persistent_workers=True),
        r"^session\.keep\('a', DataLoader\): persistent_workers=True: .* make the loader with persistent_workers=False",
    ),
    "units": ("ema", SHARDED, r"^session\.keep\('ema', Linear\): it holds units of this rank"),
    "units of an optimizer": ("o", torch.optim.SGD(SHARDED.parameters()), "it holds units of this rank"),
}


@pytest.mark.parametrize(("name", "thing", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_kept_is_refused(name, thing, words):
    kept = Kept()
    kept.add("taken", SCHEDULE)
    with pytest.raises(ValueError, match=words):
        kept.add(name, thing)


def test_an_object_must_be_kept_before_it_is_restored():
    kept = Kept()
    kept.close()
    with pytest.raises(ValueError, match=r"too late: keep all objects before session\.restore"):
        kept.add("schedule", SCHEDULE)


schedulers = torch.optim.lr_scheduler
SCHEDULERS = {
    "OneCycle": lambda o: schedulers.OneCycleLR(o, 0.5, total_steps=9),
    "Sequential": lambda o: schedulers.SequentialLR(o, [schedulers.LinearLR(o), schedulers.ExponentialLR(o, 0.9)], [2]),
    "Chained": lambda o: schedulers.ChainedScheduler([schedulers.LinearLR(o), schedulers.ExponentialLR(o, 0.9)]),
    "held by an object": lambda o: Holder(schedulers.StepLR(o, 2)),
}


class Holder:
    def __init__(self, schedule):
        self.schedule = schedule
        self.state_dict, self.load_state_dict = schedule.state_dict, schedule.load_state_dict


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)
def test_a_scheduler_of_the_optimizer_must_be_kept(make):
    optimizer, kept = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9), Kept()
    kept.check_schedule(optimizer)
    schedule = make(optimizer)
    kept.add("another optimizer's", SCHEDULE)
    with pytest.raises(ValueError, match=r'a scheduler that is not kept.*session\.keep\("schedule", scheduler\)'):
        kept.check_schedule(optimizer)
    kept.add("schedule", schedule)
    kept.check_schedule(optimizer)


def loader(seed):
    return DataLoader(PAIRS, 2, shuffle=True, generator=torch.Generator().manual_seed(seed))


class Noisy(Dataset):
    """Samples that are drawn anew each time, as an augmentation does."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index + torch.rand(())


def noisy(seed=1, batch=2, own=False, **options):
    """Return a loader of Noisy, after a seed; own: it has a generator of its own."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed) if own else None
    return DataLoader(Noisy(), batch, generator=generator, **options)


def keeping(loader):
    kept = Kept()
    kept.add("data", loader)
    return kept


def read(loader, epochs):
    """Return the batches of some epochs, and a number that the loop draws after each."""
    return [(batch.tolist(), float(torch.rand(()))) for _ in range(epochs) for batch in loader]


LOADERS = {
    "own generator": {"shuffle": True, "own": True},
    "torch's generator": {"shuffle": True},
    "in order": {},
    "a part is left out": {"shuffle": True, "batch": 3, "drop_last": True},
    "no batches": {"shuffle": True, "batch": None},
    "a worker": {"shuffle": True, "num_workers": 1},
    "a worker, own generator": {"shuffle": True, "num_workers": 1, "own": True},
}


@pytest.mark.parametrize("options", LOADERS.values(), ids=LOADERS)
def test_a_kept_loader_continues_within_an_epoch(options):
    expected = read(noisy(**options), 3)
    first = noisy(**options)
    kept, before = keeping(first), []
    for batch in itertools.islice(itertools.chain(first, first), len(first) + 2):  # within the second epoch
        before.append((batch.tolist(), float(torch.rand(()))))
        state, generator = copy.deepcopy(kept.states()), torch.get_rng_state()
    assert before == expected[: len(before)]
    again = noisy(seed=7, **options)
    other = keeping(again)
    torch.set_rng_state(generator)
    other.resume(state)
    assert other.states()["data"]["read"] == 2
    assert read(again, 2) == expected[len(before) :]


@pytest.mark.parametrize(
    ("options", "words"),
    [({"batch": 5}, "in batches of 2; this one has 10 in batches of 5"), ({"own": True}, "another number of gen")],
)
def test_another_loader_cannot_continue_within_an_epoch(options, words):
    first = noisy(shuffle=True)
    kept = keeping(first)
    next(iter(first))
    with pytest.raises(ValueError, match=words):
        keeping(noisy(shuffle=True, **options)).resume(kept.states())


def test_a_kept_loader_draws_the_epochs_of_a_plain_one():
    plain, kept = loader(1), loader(1)
    Kept().add("data", kept)
    epochs = [[[batch.tolist() for (batch,) in each] for _ in range(3)] for each in (plain, kept)]
    assert epochs[0] == epochs[1]


def test_a_shuffled_loader_continues_after_the_last_batch_of_an_epoch():
    first, again, kept, other = loader(1), loader(2), Kept(), Kept()
    kept.add("data", first)
    other.add("data", again)
    for _ in zip(range(3), first, strict=True):  # stops before the loader sees that there is no fourth batch
        state = kept.states()
    epochs = [[batch.tolist() for (batch,) in first] for _ in range(2)]
    other.resume(state)
    assert [[batch.tolist() for (batch,) in again] for _ in range(2)] == epochs
