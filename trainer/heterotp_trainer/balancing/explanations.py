"""The sentences that say why a plan is as it is: pure functions of numbers. No code reads them back."""

from collections.abc import Sequence

from heterotp_api.formatting import listed, ranks_listed
from heterotp_api.policy import BalancingSettings

from heterotp_trainer.balancing.history import Array, Observation
from heterotp_trainer.balancing.prediction import Price
from heterotp_trainer.plans.ownership import MoveCase, MoveCause
from heterotp_trainer.plans.unit_plan import Family
from heterotp_trainer.plans.work_plan import Cause

NAMED = 4  # ranks that a sentence names one by one
NOUNS: dict[Family, str] = {"heads": "heads", "ffn": "hidden units", "vocab": "vocabulary rows"}


def seconds_named(seconds: float) -> str:
    """Return seconds with three digits."""
    return f"{seconds:.3g} s"


def size_named(nbytes: float) -> str:
    """Return bytes in the largest unit that fits, in steps of 1024."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.3g} GiB"


# -- the work of ranks ----------------------------------------------------------------------------------------


def not_measured(policy: BalancingSettings) -> str:
    """Return the sentence until the first window is full."""
    return f"{policy.strategy}: no rank is known to be slow"


def single_rank(policy: BalancingSettings) -> str:
    """Return the sentence for a job of one rank."""
    return f"{policy.strategy}: a single rank does not wait for others"


def fixed_ratio(policy: BalancingSettings) -> str:
    """Return the sentence on a ratio that the policy fixes."""
    block = policy.fixed
    assert block is not None
    what = "pruned" if block is policy.zero else "migrated"
    share = f"{block.fixed_ratio:.0%} of the columns of {ranks_listed(block.ranks or (), NAMED)} {what}"
    return f"{policy.strategy}: {share}, as the policy fixes it"


def no_straggler(policy: BalancingSettings) -> str:
    """Return the sentence when all ranks are about as fast."""
    return f"{policy.strategy}: no rank is slower than the others"


def left_alone(policy: BalancingSettings, chi: Array, stragglers: Sequence[int]) -> str:
    """Return the sentence when stragglers keep their work; chi: of each rank, [e]."""
    if policy.moves_units:
        return (
            f"{_slow(chi, stragglers)}; {policy.strategy} moves units once the time lost has reached what a move costs"
        )
    return f"{_slow(chi, stragglers)}; strategy {policy.strategy} leaves the work as it is"


def no_faster_plan(policy: BalancingSettings, chi: Array, stragglers: Sequence[int], price: Price) -> str:
    """Return the sentence when the best plan found is not faster; chi: of each rank, [e]."""
    than = f"{price.untouched:.3g} s an iteration"
    return f"{_slow(chi, stragglers)}; {policy.strategy} finds no plan that is faster than {than}"


def reduced(seen: Observation, chi: Array, stragglers: Sequence[int], price: Price, base_wait: float) -> str:
    """Return the sentence on what stragglers prune and migrate, and what that saves; chi: of each rank, [e]."""
    done = listed([_shares(price, rank) for rank in price.ranks], NAMED, "; ")
    lossy = f", {price.deleted:.1%} of all work deleted" if price.deleted else ", lossless"
    times = f"{price.untouched:.3g} s -> {price.predicted:.3g} s an iteration predicted"
    above = (price.predicted or 0.0) - price.aside - base_wait - float(min(seen.total))
    return f"{_slow(chi, stragglers)}: {done}{lossy}; {times}{_left_over(above, seen)}"


def _slow(chi: Array, ranks: Sequence[int]) -> str:
    return f"{_times(ranks, max((float(chi[rank]) for rank in ranks), default=1.0))} slower"


def _times(ranks: Sequence[int], most: float) -> str:
    return f"{ranks_listed(ranks, NAMED)} {'are up to' if len(ranks) > 1 else 'is'} {most:.1f}x"


def _shares(price: Price, rank: int) -> str:
    parts = ((float(price.pruned[rank]), "pruned"), (float(price.migrated[rank]), "migrated"))
    return f"rank {rank} " + ", ".join(f"{share:.0%} {what}" for share, what in parts if share)


def _left_over(above: float, seen: Observation) -> str:
    """Return what clipping left over, where it is more than a tenth of the fastest rank's time."""
    return f" ({above:.3g} s above the fastest rank)" if above > 0.1 * float(min(seen.total)) else ""


# -- the ownership of units -----------------------------------------------------------------------------------


def no_shares(policy: BalancingSettings) -> str:
    """Return the sentence when no shares keep the policy's limits."""
    return f"{policy.strategy}: no shares keep minUnits and memoryLimitBytes: units stay"


def move(cause: Cause, case: MoveCase, short: Sequence[int], beside: float) -> str:
    """Return the sentence on a proposal that has come to an end: units moved, or why not; short: see MoveStep.

    beside: seconds of an iteration that the case leaves out: the least wait, data and control.
    """
    endings = {
        Cause.UNITS_MOVED: "",
        Cause.MEMORY_REFUSED: f"; {ranks_listed(short, NAMED)} lacked memory for it: units stay where they are",
    }
    return f"{_why(case)}: {_what(case, beside)}{endings[cause]}"


def _what(case: MoveCase, beside: float) -> str:
    moved = [f"{moved} of {whole} {NOUNS[family]}" for family, moved, whole in case.units if moved]
    cost, lost = seconds_named(case.move_seconds), seconds_named(case.lost_seconds)
    price = f"{size_named(case.moved_bytes)}, {cost} expected, {lost} lost before"
    now, then = (seconds_named(each + beside) for each in (case.now_seconds, case.then_seconds))
    gain = f"{now} -> {then} an iteration predicted"
    return f"{listed(moved) or 'nothing'} move ({price}); {gain}"


def _why(case: MoveCase) -> str:
    causes = {
        MoveCause.EVICTION: f"the policy evicts {ranks_listed(case.evicted, NAMED)}",
        MoveCause.NO_EVICTION: "the policy evicts no rank any more",
        MoveCause.LIMITS: "shares do not keep the policy's minUnits or memoryLimitBytes",
        MoveCause.UNEVEN: "shares do not fit the ranks' speeds",
    }
    if case.cause in causes:
        return causes[case.cause]
    parts = [f"{_times(case.slower, case.slower_ratio)} slower than expected"] if case.slower else []
    if case.faster:
        parts.append(f"{_times(case.faster, case.faster_ratio)} faster than expected")
    return listed(parts)
