"""Which slow-down each rank has at a given moment: a pure function of the injections and their ages.

Moments: an iteration is the run's own number; seconds and periods count from when an injection took effect,
without the time that it was paused, and go on after a restart.
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
    """Return the ages after one more iteration of so many seconds; injections that are gone are forgotten."""
    grown = {}
    for each in injections:
        age = ages.get(each.uid, Age())
        grown[each.uid] = age if each.paused else Age(age.iterations + 1, age.seconds + seconds)
    return grown


def slowdowns(
    injections: Sequence[ControlInjection], ages: Ages, iteration: int, epoch: int, ranks: int
) -> list[tuple[float, SlowdownMode | None]]:
    """Return, per rank, chi in iteration `iteration`, the product of all that hold for it, and how to do it.

    A product is at most MOST_SLOWDOWN: more would be a rank that hangs. The mode is that of the first that holds;
    None: by device.
    """
    found: list[tuple[float, SlowdownMode | None]] = [(1.0, None)] * ranks
    for each in injections:
        age = ages.get(each.uid, Age())
        if is_active(each, age, iteration):
            for rank in struck(each, age, epoch):
                chi, mode = found[rank]
                found[rank] = (min(MOST_SLOWDOWN, chi * each.slowdown), mode if chi > 1 else each.mode)
    return found


@dataclass(frozen=True)
class Injecting:
    """The injections of one iteration and what they ask of each rank; lapsed: their lease is over, none holds."""

    asked: tuple[tuple[float, SlowdownMode | None], ...] = ()
    injections: Sequence[ControlInjection] = ()
    ages: Ages = field(default_factory=dict)
    iteration: int = 0
    epoch: int = 0
    lapsed: bool = False

    def states(self) -> tuple[TrainerInjection, ...]:
        """Return what each injection does in this iteration."""
        return tuple(self._state(each) for each in self.injections)

    def _state(self, each: ControlInjection) -> TrainerInjection:
        age = self.ages.get(each.uid, Age())
        state = "lapsed" if self.lapsed else state_of(each, age, self.iteration)
        ranks = struck(each, age, self.epoch) if state == "active" else ()
        return TrainerInjection(uid=each.uid, state=state, ranks=ranks, seconds=age.seconds)


def state_of(injection: ControlInjection, age: Age, iteration: int) -> InjectionState:
    """Return whether an injection waits for its start, holds, is paused or is over."""
    if injection.stop is not None and _reached(injection.stop, age, iteration):
        return "finished"
    if injection.paused:
        return "paused"
    return "active" if is_active(injection, age, iteration) else "waiting"


def is_active(injection: ControlInjection, age: Age, iteration: int) -> bool:
    """Return whether an injection holds in this iteration: from start on, until before stop."""
    if injection.paused:
        return False
    started = injection.start is None or _reached(injection.start, age, iteration)
    stopped = injection.stop is not None and _reached(injection.stop, age, iteration)
    return started and not stopped


def _reached(moment: Moment, age: Age, iteration: int) -> bool:
    if moment.iteration is not None:
        return iteration >= moment.iteration
    return age.seconds >= (moment.seconds or 0.0)


def struck(injection: ControlInjection, age: Age, epoch: int) -> tuple[int, ...]:
    """Return the ranks that it strikes now: all of them, or the one whose turn it is."""
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
