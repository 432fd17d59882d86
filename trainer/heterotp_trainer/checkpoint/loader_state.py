"""The state of a DataLoader, also within an epoch: after a resume it reads exactly the samples that are left."""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler

from heterotp_trainer.errors import InputError


class WholeEpoch(Sampler[int]):
    """A sampler that draws all that it draws for an epoch at its start, in the order of torch's own one.

    torch's RandomSampler draws a second order when the batches have been read, of which it uses nothing: a checkpoint
    of the epoch's last iteration would hold the generator before that draw, and the next epoch would be another one.
    """

    _rest: list[int] | None = None

    def __iter__(self) -> Iterator[int]:
        rest, self._rest = self._rest, None
        yield from self._drawn() if rest is None else rest

    def continue_after(self, samples: int) -> None:
        """Draw an epoch now; the next iteration gives it without its first samples."""
        self._rest = self._drawn()[samples:]

    def _drawn(self) -> list[int]:
        return list(super().__iter__())


class ShuffledEpoch(WholeEpoch, RandomSampler):
    """A RandomSampler that can continue within an epoch."""


class OrderedEpoch(WholeEpoch, SequentialSampler):
    """A SequentialSampler that can continue within an epoch."""


class FollowedLoader(DataLoader[Any]):
    """A DataLoader whose batches are counted while they are read."""

    kept_state: "LoaderState"

    def __iter__(self) -> Any:
        return self.kept_state.follow(super().__iter__)


class LoaderState:
    """A DataLoader as something to keep: its generators at the start of the epoch, and the batches read since then.

    An epoch that the loop left early, after `break`, is continued after a resume.
    """

    def __init__(self, loader: DataLoader[Any], told: str) -> None:
        """told: what is kept, for errors. Raises ValueError for a DataLoader that cannot be continued exactly."""
        _refuse(loader, told)
        self._loader, self._told = loader, told
        drawing = [loader.generator, getattr(loader.sampler, "generator", None)]
        self._own = list({id(each): each for each in drawing if isinstance(each, torch.Generator)}.values())
        # torch's is of the checkpoint itself; here only as it was at the start of the epoch
        self._all = [*self._own, torch.default_generator]
        self._start: list[Tensor] = self._states()
        self._read = 0  # batches of the epoch
        self._resumed = False
        loader.sampler.__class__ = ShuffledEpoch if isinstance(loader.sampler, RandomSampler) else OrderedEpoch
        loader.__class__ = type(type(loader).__name__, (FollowedLoader, type(loader)), {"kept_state": self})

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        own = [generator.get_state() for generator in self._own]
        return {"read": self._read, "sizes": self._sizes(), "start": self._start, "own": own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the state; raises InputError where the DataLoader was another one, within an epoch."""
        read, before, now = state["read"], list(state["sizes"]), self._sizes()
        within = 0 < read < before[2]
        if len(state["own"]) != len(self._own):
            raise InputError(f"{self._told}: in the checkpoint it had another number of generators: make it as it was")
        if within and before != now:
            raise InputError(
                f"{self._told}: the checkpoint is within an epoch of {before[0]} samples in batches of {before[1]}; "
                f"this one has {now[0]} in batches of {now[1]}: make it as it was"
            )
        for generator, held in zip(self._own, state["own"], strict=True):
            generator.set_state(held)
        self._start, self._read, self._resumed = list(state["start"]), read, within

    def follow(self, begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Return the batches of a new epoch, or of the rest of the one that the state was taken in.

        begin: torch's iterator over the batches of an epoch.
        """
        resumed, self._resumed = self._resumed, False
        if resumed:
            return self._counted(self._rest(begin))
        self._start, self._read = self._states(), 0
        return self._counted(begin())

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self._read += 1
            yield batch

    def _rest(self, begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Draw the epoch as it was drawn, and leave the generators as they are now."""
        now, loader = self._states(), self._loader
        self._set(self._start)
        batches = begin()  # with workers it draws the order, which they begin to load
        if not loader.num_workers:
            assert isinstance(loader.sampler, WholeEpoch)
            loader.sampler.continue_after(self._read * (loader.batch_size or 1))
        self._set(now)
        if loader.num_workers:  # they read what is skipped, too: their generators depend on it
            deque(islice(batches, self._read), maxlen=0)
        return batches

    def _sizes(self) -> list[int]:
        """Return the samples of an epoch, those of a batch, and the batches of an epoch."""
        assert isinstance(self._loader.sampler, RandomSampler | SequentialSampler)
        return [len(self._loader.sampler), self._loader.batch_size or 1, len(self._loader)]

    def _states(self) -> list[Tensor]:
        return [generator.get_state() for generator in self._all]

    def _set(self, states: list[Tensor]) -> None:
        for generator, state in zip(self._all, states, strict=True):
            generator.set_state(state)


def _refuse(loader: DataLoader[Any], told: str) -> None:
    """Raise InputError for a DataLoader that cannot be continued exactly."""
    sampler, batches = loader.sampler, loader.batch_sampler
    if loader.persistent_workers:
        raise InputError(
            f"{told}: persistent_workers=True: torch then draws the workers' seed once in a run, so that epochs "
            "after a resume would differ: make the loader with persistent_workers=False"
        )
    ours = type(sampler) in (RandomSampler, SequentialSampler) and (batches is None or type(batches) is BatchSampler)
    if not ours or (batches is not None and getattr(batches, "sampler", None) is not sampler):
        raise InputError(
            f"{told}: only one with torch's own order of samples (shuffle=True or False) has a state: keep a sampler "
            "of your own itself"
        )
    if isinstance(sampler, RandomSampler) and (sampler.replacement or len(sampler) != len(sampler.data_source)):
        raise InputError(f"{told}: its sampler draws with replacement, or a part: keep a sampler of your own")
