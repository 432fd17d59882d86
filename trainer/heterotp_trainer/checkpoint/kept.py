"""What a user keeps in checkpoints beside model and optimizer: schedulers, samplers, anything with a state."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from heterotp_trainer.checkpoint.loader_state import LoaderState
from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec


@runtime_checkable
class Stateful(Protocol):
    """An object whose state a checkpoint can hold."""

    def state_dict(self) -> Any:
        """Return the state: numbers, strings, None, tensors, and lists, tuples and dicts of them."""

    def load_state_dict(self, state: Any, /) -> object:
        """Continue from a state."""


class _Generator:
    """A torch.Generator as a Stateful."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Tensor]:
        return {"state": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._generator.set_state(state["state"])


class Kept:
    """The objects of `Session.keep`, by name."""

    def __init__(self) -> None:
        self._objects: dict[str, Stateful] = {}
        self._closed = False

    def add(self, name: str, thing: object) -> None:
        """Keep an object under a name; raises ValueError for what cannot be kept."""
        told = f"session.keep({name!r}, {type(thing).__name__})"
        if not isinstance(name, str) or not name:
            raise InputError(f"{told}: the name must be a text that is not empty")
        if name in self._objects:
            raise InputError(f"{told}: another object has this name: give each its own")
        if self._closed:
            raise InputError(f"{told}: too late: keep all objects before session.restore(), which fills them")
        found = _as_stateful(thing, told)
        if not isinstance(found, Stateful):
            raise InputError(
                f"{told}: it needs state_dict() and load_state_dict(state), or must be a torch.Generator or DataLoader"
            )
        if any(shard_spec(tensor) is not None for tensor in _tensors(found)):
            raise InputError(
                f"{told}: it holds units of this rank, which move to other ranks without it: keep no such state"
            )
        self._objects[name] = found

    def close(self) -> None:
        """Refuse further objects: a checkpoint, if there is one, is read now."""
        self._closed = True

    def check_schedule(self, optimizer: torch.optim.Optimizer) -> None:
        """Raise InputError where a scheduler of torch acts on the optimizer and nothing kept belongs to it."""
        scheduled = any("initial_lr" in group for group in optimizer.param_groups)  # left there by every scheduler
        if scheduled and not any(_belongs_to(each, optimizer) for each in self._objects.values()):
            raise InputError(
                "session.keep: the learning rate follows a scheduler that is not kept, which would begin anew after a "
                'restart: call session.keep("schedule", scheduler) before session.restore()'
            )

    def states(self) -> dict[str, Any]:
        """Return the state of each object, by name."""
        return {name: each.state_dict() for name, each in self._objects.items()}

    def check(self, held: Iterable[str] | None, iteration: int) -> None:
        """Raise ValueError where a checkpoint holds other names; held: None for one of before names were kept."""
        if held is None:
            return
        held, checkpoint = set(held), f"the checkpoint of iteration {iteration}"
        missing, extra = (sorted(names) for names in (self._objects.keys() - held, held - self._objects.keys()))
        if missing:
            raise InputError(f"session.keep: {checkpoint} has no state of {missing}; it has {sorted(held)}")
        if extra:
            raise InputError(
                f"session.keep: {checkpoint} has the state of {extra}, which is kept no longer: call session.keep with "
                "each of these names before session.restore()"
            )

    def resume(self, states: Mapping[str, Any]) -> None:
        """Give each object its state."""
        for name, state in states.items():
            self._objects[name].load_state_dict(state)

    def __len__(self) -> int:
        return len(self._objects)


def _belongs_to(thing: object, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an object, or one that it holds, works on this optimizer, as a scheduler does."""
    held = [thing, *getattr(thing, "__dict__", {}).values()]
    return any(each is optimizer or getattr(each, "optimizer", None) is optimizer for each in held)


def _as_stateful(thing: object, told: str) -> object:
    if isinstance(thing, torch.Generator):
        return _Generator(thing)
    if isinstance(thing, DataLoader) and not isinstance(thing, Stateful):
        return LoaderState(thing, told)
    return thing


def _tensors(thing: object) -> Iterable[Tensor]:
    if isinstance(thing, nn.Module):
        return thing.parameters()
    if isinstance(thing, torch.optim.Optimizer):
        return [parameter for group in thing.param_groups for parameter in group["params"]]
    return ()
