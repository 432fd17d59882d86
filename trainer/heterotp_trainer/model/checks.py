"""Random operations of a model: allowed on whole activations, where all ranks draw the same; refused on units.

Units change rank, and each rank draws a mask for its own ones, so that no dropout may lie between a column-parallel
linear and the row-parallel one that follows. On activations that every rank holds whole, all ranks draw the same mask
as long as their generators are in the same state, which the user's seed decides.
"""

import hashlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from heterotp_trainer.errors import InputError
from heterotp_trainer.model.whole_uses import WholeUses
from heterotp_trainer.tensor_parallel.backward_order import backward_pass
from heterotp_trainer.tensor_parallel.linear import ParallelLinear

WHY = "ranks draw unlike masks, and units change rank: leave it out, or p=0"
PARTS_EVERY = 100  # iterations: one in which all modules are watched, where dropout on whole activations is in use
SEED = "torch's random generator, from which the model drops whole activations (torch.manual_seed alike on all ranks)"


class DrawCheck:
    """Raises InputError after a forward in training that drew random numbers in a sharded region, as F.dropout does.

    In the first iteration also in one that computes with a cut parameter outside of its layer, see WholeUses.

    In the first iteration all modules are watched, and the innermost that draws is named; later only the model and
    those that the loop itself called, of which none may begin to draw. Where they draw from the start, on whole
    activations, all modules are watched again every PARTS_EVERY iterations, for a draw that began elsewhere meanwhile.
    unlike: the ranks' devices draw unlike numbers.
    on_whole: whether draws on whole activations were seen. first_state: of the generators, before the first forward.
    """

    def __init__(self, model: nn.Module, device: torch.device, *, unlike: bool = False) -> None:
        self._device, self._unlike = device, unlike
        self.on_whole, self.first_state = False, ""
        # by module that was entered: states of the generators then, and whether it lies in a sharded region
        self._entered: dict[nn.Module, tuple[list[Tensor], bool]] = {}
        self._region: tuple[str, list[Tensor]] | None = None  # the column linear that began it, and the states then
        self._first = True  # the first iteration has not ended
        self._uses = WholeUses(model)
        self._outermost: set[nn.Module] = {model}
        self._names = {module: f"{name}: " if name else "" for name, module in model.named_modules()}
        self._hooked: dict[nn.Module, list[RemovableHandle]] = {}
        self._watch_parts()

    def _hooks(self, name: str, module: nn.Module) -> list[RemovableHandle]:
        def enter(module: nn.Module, arguments: Any) -> None:
            if not _watched(module):
                return
            if not self._entered:
                self._outermost.add(module)
                self._begin_uses(module)
            states = self._states()
            self.first_state = self.first_state or _digest(states)
            self._entered[module] = states, self._region is not None
            if _bounds(module, "row"):
                self._end_region(name, states)

        def leave(module: nn.Module, arguments: Any, output: Any) -> None:
            if not _watched(module):
                return
            (before, in_region), now = self._entered.pop(module), self._states()
            if not _same(before, now):
                self._drawn(name, module, in_region)
            if _bounds(module, "column") and self._region is None:
                self._region = name, now

        around = [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
        return [*around, module.register_forward_hook(self._end_uses, always_call=True)]

    def _begin_uses(self, module: nn.Module) -> None:
        if self._first and self._uses.called is None:
            self._uses.called = module
            self._uses.__enter__()

    def _end_uses(self, module: nn.Module, arguments: Any, output: Any) -> None:
        """Also called where the forward raised an error, which the script may have expected."""
        if self._uses.called is module:
            self._uses.called = None
            self._uses.__exit__(None, None, None)
            self._entered.clear()

    def _end_region(self, name: str, now: list[Tensor]) -> None:
        """A row-parallel linear takes the units' outputs: nothing was drawn since they were made."""
        begun, self._region = self._region, None
        if begun is not None and not _same(begun[1], now):
            where = f"between {begun[0].removesuffix(': ')} and {name.removesuffix(': ')}"
            raise InputError(f"model: random numbers are drawn in training {where} (a dropout?): {WHY}")

    def _drawn(self, name: str, module: nn.Module, in_region: bool) -> None:
        what = f"model: {name}{type(module).__name__} draws random numbers in training (a dropout?)"
        if in_region:
            self._region = None
            raise InputError(f"{what}: {WHY}")
        if self._unlike:
            raise InputError(f"{what}: devices of unlike kinds draw unlike masks: leave it out, or p=0")
        if not self._first and not self.on_whole:
            raise InputError(f"{what}, but not in the first iteration, where its place is checked: draw from the start")
        self.on_whole = True

    def _states(self) -> list[Tensor]:
        cuda = [torch.cuda.get_rng_state(self._device)] if self._device.type == "cuda" else []
        return [torch.get_rng_state(), *cuda]

    def state_digest(self) -> Tensor | None:
        """Return a digest of the generators, [8] uint8, where the model draws from them; None: it does not."""
        if not self.on_whole:
            return None
        return torch.tensor(list(bytes.fromhex(_digest(self._states()))), dtype=torch.uint8)

    def iteration_ended(self, iteration: int) -> None:
        """Choose what to watch in the coming iteration: all modules, or only what the loop itself calls.

        Reading the generators costs time.
        """
        self._first, self._region = False, None
        if self.on_whole and iteration % PARTS_EVERY == 0:
            self._watch_parts()
        elif len(self._hooked) > len(self._outermost):
            self._forget_parts()

    def _watch_parts(self) -> None:
        for module in self._names.keys() - self._hooked.keys():
            self._hooked[module] = self._hooks(self._names[module], module)

    def _forget_parts(self) -> None:
        for module in self._hooked.keys() - self._outermost:
            for handle in self._hooked.pop(module):
                handle.remove()


def _bounds(module: nn.Module, parallel: str) -> bool:
    """Return whether a module begins (column) or ends (row) a region in which each rank holds its own units."""
    return isinstance(module, ParallelLinear) and module.parallel == parallel and module.spec.family != "vocab"


def _watched(module: nn.Module) -> bool:
    """Return whether a call counts: in training, and no recomputation, which may end inside of a module."""
    return module.training and backward_pass() < 0


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def _digest(states: list[Tensor]) -> str:
    found = hashlib.blake2b(digest_size=8)
    for state in states:
        found.update(state.numpy().tobytes())
    return found.hexdigest()
