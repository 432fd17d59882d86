"""What enters the model must be equal on all ranks: the hash of it, which the boundary's report carries.

| call           | a rank holds            | afterwards                                                |
|----------------|-------------------------|-----------------------------------------------------------|
| BatchHash.take | what entered its model  | its own hash and outline, compared in the boundary's merge |
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from heterotp_trainer.boundary.agreement import SPREAD, words_of

SAMPLED_WORDS = 1024  # of each tensor that enters the model
Sums = tuple[Tensor | int, Tensor | float, Tensor | float]
NOTHING: Sums = (0, 0.0, 0.0)


class Entered(NamedTuple):
    """What entered the model in an iteration: a 64-bit hash, and the outline of what is compared within a bound.

    norm, signed: of sampled values of all floats, as `agreement.outline`; 0 on like devices, where all is hashed.
    """

    hash: int
    norm: float
    signed: float


class BatchHash:
    """The hash of the tensors that enter a model in training, of which some thousand words each are sampled.

    Where a loop calls parts of the model (model.encoder(x)) and not the model, they are what enters the first part in
    an iteration that receives any, without tensors of the graph: those differ by rounding on unlike devices.
    """

    def __init__(self, model: nn.Module, *, unlike: bool = False, late: bool = False) -> None:
        """unlike: the ranks' devices round differently, so that floats may have been computed a little otherwise.

        late: `take` returns what entered in the iteration before, because some rank's device runs behind its host.
        """
        self.compare(unlike=unlike, late=late)
        self._sums: Sums = NOTHING  # hash, squares, sum with signs
        self._before: Sums = NOTHING
        self._added = 0
        self._entered = False  # whether a tensor entered the model or a part in this iteration
        model.register_forward_pre_hook(self._enter, with_kwargs=True)
        self._parts: dict[nn.Module, RemovableHandle] = {
            part: part.register_forward_pre_hook(self._enter_part, with_kwargs=True)
            for part in model.modules()
            if part is not model
        }

    def compare(self, *, unlike: bool, late: bool) -> None:
        """Compare as among ranks like these from now on."""
        self.late, self._unlike = late, unlike

    def _enter(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if module.training and (batch := list(_tensors((arguments, named)))):
            self._watch_only(module)
            self.add(batch)

    def _enter_part(self, part: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self._entered or not part.training:
            return
        if batch := [tensor for tensor in _tensors((arguments, named)) if not tensor.requires_grad]:
            self._watch_only(part)
            self.add(batch)

    def _watch_only(self, module: nn.Module) -> None:
        """Note that a batch entered here, and look at no other part from now on: each hook costs time."""
        self._entered = True
        for part in [part for part in self._parts if part is not module]:
            self._parts.pop(part).remove()

    def add(self, *batch: Any) -> None:
        """Add all tensors of a batch, in its order; sparse, nested and quantized ones are left out."""
        for tensor in filter(_has_words, _tensors(batch)):
            flat = tensor.detach().reshape(-1)
            sample = flat[:: max(1, len(flat) // SAMPLED_WORDS)]
            number, squares, signed = self._sums
            number = number * 31 + tensor.numel()
            if self._unlike and not _is_whole(sample):
                more = _outline_of_sample(sample, self._added)
                squares, signed = squares + more[0], signed + more[1]
            else:
                number = number + _checksum_of_sample(words_of(sample))
            self._sums = number, squares, signed
            self._added += 1

    def forget(self) -> None:
        """Forget what entered in an iteration that is given up, and will be repeated."""
        self._sums = self._before = NOTHING
        self._added, self._entered = 0, False

    def take(self) -> Entered:
        """Return what entered in an iteration and begin the next; the same iteration's on all ranks.

        Where it is that of the iteration before (late), the host waits for nothing: the update between two calls waits
        for the norm of the gradients.
        """
        newest = self._sums
        self._sums, self._added, self._entered = NOTHING, 0, False
        if self.late:
            number, squares, signed = newest
            arriving = to_host(number), to_host(squares), to_host(signed)  # read one iteration later
            newest, self._before = self._before, arriving
        number, squares, signed = newest
        return Entered(int(number) & 0xFFFFFFFFFFFFFFFF, math.sqrt(float(squares)), float(signed))


def _is_whole(tensor: Tensor) -> bool:
    """Return whether values are whole numbers or booleans, which no device rounds."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def _checksum_of_sample(words: Tensor) -> Tensor:
    """Return the checksum of a few words, in one operation: it is made in every iteration."""
    return (words.to(torch.int64) * _factors(words.device)[: len(words)]).sum()


def _outline_of_sample(sample: Tensor, place: int) -> tuple[Tensor, Tensor]:
    """Return the sum of squares of a few values, and their sum with signs that depend on place and order."""
    plain = torch.view_as_real(sample.resolve_conj()).reshape(-1) if sample.is_complex() else sample
    values, first = plain.double(), 61 * place % SAMPLED_WORDS
    signs = _factors(values.device)[first : first + len(values)].sign()
    return values.square().sum(), (values * signs).sum()


@lru_cache
def _factors(device: torch.device) -> Tensor:
    """Return the factors of the words of a sample, which make their order count."""
    return torch.arange(1, 8 * SAMPLED_WORDS + 1, device=device) * SPREAD


def _has_words(tensor: Tensor) -> bool:
    """Return whether the values of a tensor are plain memory."""
    return not (tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_meta)


def to_host(value: Any) -> Any:
    """Return a copy in the host's memory, which is there once the device has done all work before it."""
    if not isinstance(value, Tensor) or value.device.type == "cpu":
        return value
    copied = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    return copied.copy_(value, non_blocking=True)


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists and dictionaries, in their order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for each in value:
            yield from _tensors(each)
