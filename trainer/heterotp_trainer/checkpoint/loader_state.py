"""The state of a shuffled DataLoader between two epochs."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler

from heterotp_trainer.errors import InputError


class EpochSampler(RandomSampler):
    """A RandomSampler that draws all that it draws for an epoch at its start; the order is that of a RandomSampler.

    torch's sampler draws a second order when the batches have been read, of which it uses nothing: a checkpoint of the
    epoch's last iteration would hold the generator before that draw, and the next epoch would be another one.
    """

    def __iter__(self) -> Iterator[int]:
        yield from list(super().__iter__())


class LoaderState:
    """A DataLoader as something to keep: the generator that its next epoch is drawn from."""

    def __init__(self, loader: DataLoader[Any], told: str) -> None:
        """told: what is kept, for errors. Raises ValueError for a DataLoader that cannot be continued exactly."""
        sampler = loader.sampler
        if loader.persistent_workers:
            raise InputError(
                f"{told}: persistent_workers=True: torch then draws the workers' seed once in a run, so that epochs "
                "after a resume would differ: make the loader with persistent_workers=False"
            )
        if type(sampler) is not RandomSampler or not isinstance(sampler.generator, torch.Generator):
            raise InputError(
                f"{told}: only one with shuffle=True and a generator has a state; without a generator it draws from "
                "torch's, which every checkpoint holds; keep a sampler of your own itself"
            )
        if sampler.replacement or len(sampler) != len(sampler.data_source):
            raise InputError(f"{told}: its sampler draws with replacement, or a part: keep a sampler of your own")
        sampler.__class__ = EpochSampler
        self._generator = sampler.generator

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of the generator."""
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from the state."""
        self._generator.set_state(state["generator"])
