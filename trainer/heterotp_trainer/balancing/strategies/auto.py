"""When units move (algorithms, sections 5 and 6): once the time lost since a rank's speed changed has reached what the
move costs, and only when every rank has said that it has the memory for it.

Ski rental: never more than twice what would have been best for who knows how long the change lasts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from heterotp_api.policy import BalancingSettings, Reshard

from heterotp_trainer.balancing.detection import detect, drifted
from heterotp_trainer.balancing.explanations import ranks_named, seconds_named, size_named
from heterotp_trainer.balancing.history import History
from heterotp_trainer.balancing.strategies.reshard import (
    Counts,
    Impossible,
    ReshardProblem,
    keeps_limits,
    move_seconds,
    target,
)
from heterotp_trainer.plans.arrays import Array
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.ownership import Ownership, Proposal
from heterotp_trainer.plans.unit_plan import FAMILIES, UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan

MOVING = ("RESHARD", "AUTO")
LEAST_GAIN = 0.01  # of an iteration: less is not worth a move, however long it would last
RECENT = 100  # observations for which nobody is asked again after some rank lacked the memory for a move
NOUNS = {"heads": "heads", "ffn": "hidden units"}


def moves_units(policy: BalancingSettings) -> bool:
    """Return whether a policy may move units."""
    return policy.strategy in MOVING


def reshard_problem(history: History, policy: BalancingSettings, plan: WorkPlan, costs: Costs) -> ReshardProblem | None:
    """Return what is known of who owns what, None where units may not move or nothing was measured yet."""
    seen, shards = history.median(), plan.ownership.shards
    if not moves_units(policy) or seen is None or shards is None or not costs.classes:
        return None
    return ReshardProblem(costs, seen, shards)


def stragglers(
    history: History,
    policy: BalancingSettings,
    known: Sequence[int],
    problem: ReshardProblem | None,
    ownership: Ownership,
) -> tuple[int, ...]:
    """Return who is slow now: slower than the shares were made for where units may move, else than the others.

    With whole heads, say, some ranks rightly have more to do than others; who has nothing to do keeps nobody waiting.
    """
    if problem is None:
        return detect(history, policy, known)
    ratio = _ratio(problem, ownership)
    return tuple(
        rank for rank in _drift(history, policy, ownership, problem) if ratio[rank] > 1 and problem.seen.full[rank] > 0
    )


def owned(
    history: History, policy: BalancingSettings, plan: WorkPlan, problem: ReshardProblem | None, answers: Sequence[int]
) -> WorkPlan:
    """Return the plan with what follows for who owns which units: nothing, a proposal, or the move itself.

    answers: of each rank the number of the proposal that it has reserved memory for, negative where it could not, 0
    before it has tried.
    """
    proposal = plan.ownership.proposal
    if not moves_units(policy):
        return plan if proposal is None else _with(plan, replace(plan.ownership, proposal=None))
    if proposal is not None:
        return _answered(plan, proposal, answers, history, problem)
    return plan if problem is None else _watched(history, policy, plan, problem)


def _with(plan: WorkPlan, ownership: Ownership) -> WorkPlan:
    return replace(plan, ownership=ownership)


# -- a proposal ---------------------------------------------------------------------------------------------


def _answered(
    plan: WorkPlan, proposal: Proposal, answers: Sequence[int], history: History, problem: ReshardProblem | None
) -> WorkPlan:
    """Return the plan after the ranks' answers: still waiting, moved, or given up."""
    taken = history.count
    if any(answer == -proposal.decision_id for answer in answers):
        short = [rank for rank, answer in enumerate(answers) if answer == -proposal.decision_id]
        words = f"{proposal.words}; {ranks_named(short)} lacked memory for it: units stay where they are"
        kept = replace(plan.ownership, proposal=None, lost=0.0, refused=taken)
        return replace(plan, decision_id=plan.decision_id + 1, ownership=kept, reason=words)
    if not answers or any(answer != proposal.decision_id for answer in answers):
        return plan
    if not proposal.asked and _passed(history, problem, proposal.shards):
        words = f"{proposal.words}; but that has passed: units stay where they are"
        return replace(
            plan,
            decision_id=plan.decision_id + 1,
            ownership=replace(plan.ownership, proposal=None, lost=0.0),
            reason=words,
        )
    first = plan.ownership.first or plan.ownership.shards
    moved = Ownership(proposal.shards, proposal.slowness, proposal.evicted, counted=taken, moved=taken, first=first)
    return WorkPlan(
        decision_id=plan.decision_id + 1,
        settings=plan.settings,
        base_wait=plan.base_wait,
        ownership=moved,
        predicted_seconds=proposal.seconds + (plan.base_wait or 0.0),
        reason=proposal.words,
    )


def _passed(history: History, problem: ReshardProblem | None, shards: UnitPlan) -> bool:
    """Return whether the newest iteration would have taken longer with these shares: medians tell late of an end."""
    if problem is None:
        return False
    newest = replace(problem, seen=history.last(1)[0])
    counts, current = ({family: plan.counts(family) for family in FAMILIES} for plan in (shards, problem.shards))
    return newest.seconds(counts) >= newest.seconds(current)


# -- the case for one ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Change:
    """What other shares would bring: seconds of an iteration now and then, seconds that the move takes."""

    counts: Counts
    now: float
    then: float
    cost: float


def _watched(history: History, policy: BalancingSettings, plan: WorkPlan, problem: ReshardProblem) -> WorkPlan:
    """Return the plan with the loss counted, or with a proposal when it has reached what a move costs."""
    settings, ownership = policy.reshard or Reshard(), _scaled(plan.ownership, problem)
    plan = _with(plan, ownership) if ownership is not plan.ownership else plan
    asked = _evicts_others(ownership, settings) or not keeps_limits(problem, settings)
    drift = _drift(history, policy, ownership, problem)
    if not (drift or asked or _uneven(history, policy, problem)):
        quiet = not ownership.drifted and not ownership.lost
        return plan if quiet else _with(plan, replace(ownership, drifted=(), since=(), lost=0.0))
    if not (asked or settings.return_to_even or _any_slower(problem, ownership, drift)):
        return plan
    try:
        change = _change(problem, settings, ownership.first)
    except Impossible:
        return _told(plan, f"{policy.strategy}: no shares keep minUnits and memoryLimitBytes: units stay")
    counted = _counted(history, ownership, problem, drift, change.then)
    worth = change.now - change.then > LEAST_GAIN * change.now and counted.lost >= change.cost
    refused = ownership.refused is not None and history.count - ownership.refused < RECENT
    if refused or not (worth or asked):
        return _with(plan, counted)
    return _proposed(plan, counted, problem, change, settings, asked)


def _evicts_others(ownership: Ownership, settings: Reshard) -> bool:
    """Return whether the policy evicts other ranks than those that were evicted."""
    return set(settings.evict or ()) != set(ownership.evicted)


def _counted(
    history: History, ownership: Ownership, problem: ReshardProblem, drift: tuple[int, ...], seconds: float
) -> Ownership:
    """Return the ownership with what is lost against an iteration of so many seconds since somebody drifted.

    As long as one of them still does it is the same change; others are another one, and counted anew. At first that is
    what the newest window lost: a change is seen a few iterations late.
    """
    still = tuple(rank for rank in ownership.since if rank in drift)
    goes_on = ownership.lost > 0 and (bool(still) or not (ownership.since or drift))
    unseen = history.count - ownership.counted if goes_on else history.window
    unseen = min(unseen, history.count - (ownership.moved or 0))
    fresh = sum(problem.lost(each, seconds) for each in history.last(unseen))
    lost = ownership.lost + fresh if goes_on else fresh
    return replace(ownership, drifted=drift, since=still if goes_on else drift, lost=lost, counted=history.count)


def _scaled(ownership: Ownership, problem: ReshardProblem) -> Ownership:
    """Return the first shares, of which only relative speeds are known, with slowness in seconds."""
    if ownership.moved is not None or not ownership.relative:
        return ownership
    expected = _expected(ownership, problem)
    scale = np.sort(problem.even_seconds / expected)[len(expected) // 4]
    return replace(ownership, relative=False, slowness=tuple((expected * scale).tolist()))


def _expected(ownership: Ownership, problem: ReshardProblem) -> Array:
    return np.asarray(ownership.slowness or (1.0,) * problem.shards.ranks)


def _ratio(problem: ReshardProblem, ownership: Ownership) -> Array:
    """Return how many times as slow as expected each rank is, what all of them have in common left out: [e]."""
    ratio = problem.even_seconds / _expected(ownership, problem)
    ordered = np.sort(ratio)
    low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
    common = float(np.clip(1.0, low, high))
    return ratio / common if common > 0 else np.ones_like(ratio)


def _drift(
    history: History, policy: BalancingSettings, ownership: Ownership, problem: ReshardProblem
) -> tuple[int, ...]:
    """Return the ranks whose speed is not the one that the shares were made for."""
    if ownership.moved is not None and history.count - ownership.moved < history.window:
        return ()  # curves are not exact: of the new shares what was measured under them tells
    now, before = _ratio(problem, ownership), history.median(1)
    if float(now.max()) < 1 + policy.exit and float(now.min()) > 1 / (1 + policy.exit):
        return ()
    earlier = _ratio(replace(problem, seen=before), ownership) if before is not None else None
    return drifted(now, earlier, policy, ownership.drifted)


def _uneven(history: History, policy: BalancingSettings, problem: ReshardProblem) -> bool:
    """Return whether the last rank of a family is late by more than `enter` in two windows, whatever was expected."""
    before = history.median(1)
    late = problem.imbalance > policy.enter
    return late and before is not None and replace(problem, seen=before).imbalance > policy.enter


def _any_slower(problem: ReshardProblem, ownership: Ownership, drift: Sequence[int]) -> bool:
    """Return whether a rank became slower; those that recovered keep their small share without returnToEven."""
    ratio = _ratio(problem, ownership)
    return any(ratio[rank] > 1 for rank in drift)


def _change(problem: ReshardProblem, settings: Reshard, first: UnitPlan | None) -> _Change:
    counts = target(problem, settings, first)
    current: Counts = {family: problem.shards.counts(family) for family in FAMILIES}
    cost = move_seconds(problem.costs, current, counts)
    return _Change(counts, problem.seconds(current), problem.seconds(counts), cost)


def _proposed(
    plan: WorkPlan, ownership: Ownership, problem: ReshardProblem, change: _Change, settings: Reshard, asked: bool
) -> WorkPlan:
    """Return the plan that asks all ranks for memory."""
    shards = problem.shards.rearranged(change.counts["heads"], change.counts["ffn"])
    if shards == problem.shards:
        return _with(plan, replace(ownership, evicted=tuple(settings.evict or ()), lost=0.0))
    decision_id, words = plan.decision_id + 1, _words(ownership, problem, change, settings)
    slowness = tuple(problem.even_seconds.tolist())
    proposal = Proposal(decision_id, shards, slowness, tuple(settings.evict or ()), asked, change.then, words)
    return replace(plan, decision_id=decision_id, ownership=replace(ownership, proposal=proposal))


def _told(plan: WorkPlan, words: str) -> WorkPlan:
    return plan if plan.reason == words else replace(plan, decision_id=plan.decision_id + 1, reason=words)


# -- words --------------------------------------------------------------------------------------------------


def _words(ownership: Ownership, problem: ReshardProblem, change: _Change, settings: Reshard) -> str:
    moved = []
    nbytes = 0.0
    for family in FAMILIES:
        before, after = problem.shards.counts(family), change.counts[family]
        units = sum(max(0, a - b) for a, b in zip(after, before, strict=True))
        nbytes += units * problem.costs.unit_move.unit_bytes(family)
        if units:
            moved.append(f"{units} of {sum(before)} {NOUNS[family]}")
    why = _why(ownership, problem, settings)
    price = f"{size_named(nbytes)}, {seconds_named(change.cost)} expected, {seconds_named(ownership.lost)} lost since"
    gain = f"{seconds_named(change.now)} -> {seconds_named(change.then)} an iteration beside collectives"
    return f"{why}: {' and '.join(moved) or 'nothing'} move ({price}); {gain}"


def _why(ownership: Ownership, problem: ReshardProblem, settings: Reshard) -> str:
    if _evicts_others(ownership, settings):
        gone = settings.evict or ()
        return f"the policy evicts {ranks_named(gone)}" if gone else "the policy evicts nobody any more"
    if not keeps_limits(problem, settings):
        return "shares do not keep the policy's minUnits or memoryLimitBytes"
    ratio = _ratio(problem, ownership)
    slow = [rank for rank in ownership.drifted if ratio[rank] > 1]
    fast = [rank for rank in ownership.drifted if ratio[rank] <= 1]
    parts = []
    if slow:
        most = max(float(ratio[rank]) for rank in slow)
        parts.append(f"{ranks_named(slow)} {'are up to' if len(slow) > 1 else 'is'} {most:.1f}x slower than expected")
    if fast:
        most = max(1 / float(ratio[rank]) for rank in fast)
        parts.append(f"{ranks_named(fast)} {'are up to' if len(fast) > 1 else 'is'} {most:.1f}x faster than expected")
    return ", ".join(parts) or "shares do not fit the ranks' speeds"
