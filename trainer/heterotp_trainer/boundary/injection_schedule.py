"""The slow-down of each rank at a given moment: a pure function of the injections and their ages.

A moment given as an iteration is the run's iteration number. Seconds and periods count from the iteration in which the
injection took effect, without the time in which it was paused, and continue after a restart.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heterotp_api.control import ControlInjection
from heterotp_api.injection import Every, Moment
from heterotp_api.slowdown import MOST_SLOWDOWN, SlowdownMode
from heterotp_api.trainer_status import InjectionState, TrainerInjection


@dataclass(frozen=True)
class Age:
    """How long an injection has been in effect."""

    iterations: int = 0
    seconds: float = 0.0


Ages = Mapping[str, Age]


def older(ages: Ages, injections: Sequence[ControlInjection], seconds: float) -> dict[str, Age]:
    """Return the ages after one more iteration of `seconds`; removed injections lose their age."""
    grown = {}
    for each in injections:
        age = ages.get(each.uid, Age())
        grown[each.uid] = age if each.paused else Age(age.iterations + 1, age.seconds + seconds)
    return grown


def slowdowns(
    injections: Sequence[ControlInjection], ages: Ages, iteration: int, epoch: int, ranks: int
) -> list[tuple[float, SlowdownMode | None]]:
    """Return, per rank, chi in iteration `iteration` (the product over all active injections) and the mode.

    A product is at most MOST_SLOWDOWN: with more the rank would appear to hang. The mode is that of the first active
    injection; None: chosen by device.
    """
    found: list[tuple[float, SlowdownMode | None]] = [(1.0, None)] * ranks
    for each in injections:
        age = ages.get(each.uid, Age())
        if is_active(each, age, iteration):
            for rank in target_ranks(each, age, epoch):
                chi, mode = found[rank]
                found[rank] = (min(MOST_SLOWDOWN, chi * each.slowdown), mode if chi > 1 else each.mode)
    return found


@dataclass(frozen=True)
class Injecting:
    """The injections of one iteration and each rank's (chi, mode); lapsed: the lease is over, none is active."""

    asked: tuple[tuple[float, SlowdownMode | None], ...] = ()
    injections: Sequence[ControlInjection] = ()
    ages: Ages = field(default_factory=dict)
    iteration: int = 0
    epoch: int = 0
    lapsed: bool = False

    def states(self) -> tuple[TrainerInjection, ...]:
        """Return the state of each injection in this iteration."""
        return tuple(self._state(each) for each in self.injections)

    def _state(self, each: ControlInjection) -> TrainerInjection:
        age = self.ages.get(each.uid, Age())
        state = "lapsed" if self.lapsed else state_of(each, age, self.iteration)
        ranks = target_ranks(each, age, self.epoch) if state == "active" else ()
        return TrainerInjection(uid=each.uid, state=state, ranks=ranks, seconds=age.seconds)


def state_of(injection: ControlInjection, age: Age, iteration: int) -> InjectionState:
    """Return whether an injection waits for its start, is active, is paused or has finished."""
    if injection.stop is not None and _reached(injection.stop, age, iteration):
        return "finished"
    if injection.paused:
        return "paused"
    return "active" if is_active(injection, age, iteration) else "waiting"


def is_active(injection: ControlInjection, age: Age, iteration: int) -> bool:
    """Return whether an injection is active in this iteration: from `start` on, until before `stop`."""
    if injection.paused:
        return False
    started = injection.start is None or _reached(injection.start, age, iteration)
    stopped = injection.stop is not None and _reached(injection.stop, age, iteration)
    return started and not stopped


def _reached(moment: Moment, age: Age, iteration: int) -> bool:
    if moment.iteration is not None:
        return iteration >= moment.iteration
    return age.seconds >= (moment.seconds or 0.0)


def target_ranks(injection: ControlInjection, age: Age, epoch: int) -> tuple[int, ...]:
    """Return the ranks that the injection slows now: all of its ranks or, by its pattern, one of them."""
    ranks, pattern = tuple(injection.ranks), injection.pattern
    if pattern.round_robin is not None:
        return (ranks[_period(pattern.round_robin.every, age, epoch) % len(ranks)],)
    if pattern.random is not None:
        draw = f"{pattern.random.seed}/{_period(pattern.random.every, age, epoch)}"
        digest = hashlib.blake2b(draw.encode(), digest_size=8).digest()
        return (ranks[int.from_bytes(digest, "little") % len(ranks)],)
    return ranks


def _period(every: Every, age: Age, epoch: int) -> int:
    if every.iterations is not None:
        return age.iterations // every.iterations
    return epoch // (every.epochs or 1)
