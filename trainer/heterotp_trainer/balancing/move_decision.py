"""The next step of a move of units: none, a proposal, and after all ranks' answers the move or its withdrawal.

Units move only when every rank has reported that it holds the memory for it (docs/algorithms.md, RESHARD and AUTO).
"""

from collections.abc import Sequence
from dataclasses import replace

from heterotp_api.strategy_blocks import Reshard

from heterotp_trainer.balancing import damping
from heterotp_trainer.balancing.detection import Drift
from heterotp_trainer.balancing.history import History
from heterotp_trainer.balancing.prediction import move_seconds
from heterotp_trainer.balancing.pruning import prune_meanwhile
from heterotp_trainer.balancing.reshard_problem import Counts, ReshardProblem, counts_of
from heterotp_trainer.balancing.situation import Candidate, MoveStep, Situation
from heterotp_trainer.balancing.ski_rental import pays, with_loss_counted
from heterotp_trainer.balancing.unit_planner import Impossible, keeps_limits, target
from heterotp_trainer.plans.ownership import MoveCase, MoveCause, Ownership, Proposal
from heterotp_trainer.plans.unit_plan import FAMILIES, UnitPlan
from heterotp_trainer.plans.work_plan import Cause

RECENT = 100  # observations without a proposal after a rank reported too little memory


def move_and_prune_meanwhile(situation: Situation) -> Candidate:
    """Return the next step of a move, and what stragglers prune until then, within maxPrunedShare (0 by default)."""
    return Candidate(prune_meanwhile(situation), next_move(situation))


def next_move(situation: Situation) -> MoveStep | None:
    """Return the next step of a move; None: ownership stays as it is."""
    proposal, drift = situation.plan.ownership.proposal, situation.detection.drift
    if proposal is not None:
        return _answered(situation, proposal)
    return None if drift is None else _watched(situation, drift)


# -- a proposal ---------------------------------------------------------------------------------------------


def _answered(situation: Situation, proposal: Proposal) -> MoveStep | None:
    """Return the step after the ranks' answers; None while some are missing."""
    ownership, answers = situation.plan.ownership, situation.answers
    count, window = situation.history.count, situation.policy.window
    short = tuple(rank for rank, answer in enumerate(answers) if answer == -proposal.decision_id)
    if short:
        kept = replace(ownership, proposal=None, lost_seconds=0.0, refused_at=count)
        return MoveStep(kept, Cause.MEMORY_REFUSED, proposal, short)
    if not answers or any(answer != proposal.decision_id for answer in answers):
        return None
    if not proposal.required and _obsolete(situation, proposal.unit_plan):
        records = damping.withdrawn(ownership.alternations, _made(proposal.case), count, window)
        kept = replace(ownership, proposal=None, lost_seconds=0.0, alternations=records)
        return MoveStep(kept)  # nothing was done: no decision
    moved = Ownership(
        proposal.unit_plan,
        proposal.slowness,
        proposal.evicted,
        counted_at=count,
        moved_at=count,
        first_unit_plan=ownership.first_unit_plan or ownership.unit_plan,
        first_slowness=ownership.declared_slowness,
        alternations=damping.changed(ownership.alternations, _made(proposal.case), count, window),
    )
    return MoveStep(moved, Cause.UNITS_MOVED, proposal)


def _made(case: MoveCase) -> dict[int, bool]:
    """Return the ranks for whose speed units move, True where they are slower."""
    return dict.fromkeys(case.slower, True) | dict.fromkeys(case.faster, False)


def _obsolete(situation: Situation, unit_plan: UnitPlan) -> bool:
    """Return whether the newest iteration would not be faster with this unit plan: medians show a recovery late."""
    drift = situation.detection.drift
    if drift is None:
        return False
    newest = replace(drift.problem, seen=situation.history.last(1)[0])
    return newest.seconds(counts_of(unit_plan)) >= newest.seconds(counts_of(newest.unit_plan))


# -- the case for one ---------------------------------------------------------------------------------------


def _watched(situation: Situation, drift: Drift) -> MoveStep | None:
    """Return the step while nothing is proposed: the loss is counted, and a proposal made when a move pays."""
    settings, before = situation.policy.reshard or Reshard(), situation.plan.ownership
    ownership = _with_alternations(_with_expected(before, drift), drift, situation.history)
    kept = MoveStep(ownership) if ownership is not before else None
    cause = _required(drift.problem, ownership, settings)
    if not (drift.ranks or cause or drift.uneven):
        quiet = not ownership.drifted and not ownership.lost_seconds
        return kept if quiet else MoveStep(replace(ownership, drifted=(), persistent=(), lost_seconds=0.0))
    if not (cause or settings.return_to_even or drift.slower):  # recovered ranks keep their smaller shares
        return kept
    try:
        counts = target(drift.problem, settings, ownership.first_unit_plan)
    except Impossible:
        return MoveStep(ownership, Cause.NO_SHARES)
    counted = with_loss_counted(situation.history, ownership, drift, drift.problem.seconds(counts))
    case = _case(cause, counted, drift, counts, settings)
    refused = ownership.refused_at is not None and situation.history.count - ownership.refused_at < RECENT
    if refused or not (cause or (pays(case) and not _alternates(counted, drift, situation.history))):
        return MoveStep(counted)
    return _proposed(counted, drift.problem, case, counts, settings)


def _with_expected(ownership: Ownership, drift: Drift) -> Ownership:
    """Return the ownership of the first shares with their slowness in seconds, once that is known."""
    if ownership.moved_at is not None or not ownership.relative:
        return ownership
    return replace(ownership, relative=False, slowness=tuple(drift.expected.tolist()))


def _with_alternations(ownership: Ownership, drift: Drift, history: History) -> Ownership:
    """Return the ownership with what is kept of ranks whose speed goes back and forth."""
    due = {rank: rank in drift.slower for rank in drift.ranks}
    records = damping.watched(ownership.alternations, due, history.count, history.window)
    return ownership if records == ownership.alternations else replace(ownership, alternations=records)


def _alternates(ownership: Ownership, drift: Drift, history: History) -> bool:
    """Return whether a move would only reverse earlier ones, and is not due for long enough."""
    held = damping.waiting(ownership.alternations, history.count, history.window)
    return bool(drift.ranks) and held.issuperset(drift.ranks)


def _required(problem: ReshardProblem, ownership: Ownership, settings: Reshard) -> MoveCause | None:
    """Return why the policy demands other shares, whether they are faster or not; None: it does not."""
    evicted = settings.evict or ()
    if set(evicted) != set(ownership.evicted):
        return MoveCause.EVICTION if evicted else MoveCause.NO_EVICTION
    return None if keeps_limits(problem, settings) else MoveCause.LIMITS


def _proposed(
    ownership: Ownership, problem: ReshardProblem, case: MoveCase, counts: Counts, settings: Reshard
) -> MoveStep:
    """Return the step that asks all ranks to reserve memory; none is needed where the shares stay the same."""
    unit_plan, evicted = problem.unit_plan.rearranged(counts), tuple(settings.evict or ())
    if unit_plan == problem.unit_plan:
        return MoveStep(replace(ownership, evicted=evicted, lost_seconds=0.0))
    required = case.cause not in (MoveCause.SPEEDS, MoveCause.UNEVEN)
    slowness = tuple(problem.even_seconds.tolist())
    return MoveStep(ownership, None, Proposal(0, unit_plan, slowness, evicted, required, case))


def _case(cause: MoveCause | None, ownership: Ownership, drift: Drift, counts: Counts, settings: Reshard) -> MoveCase:
    """Return the numbers for and against a move to these counts."""
    problem, current = drift.problem, counts_of(drift.problem.unit_plan)
    units = tuple((family, _gained(current[family], counts[family]), sum(current[family])) for family in FAMILIES)
    faster = tuple(rank for rank in drift.ranks if rank not in drift.slower)
    return MoveCase(
        cause or (MoveCause.SPEEDS if drift.ranks else MoveCause.UNEVEN),
        slower=drift.slower,
        slower_ratio=max((float(drift.ratio[rank]) for rank in drift.slower), default=1.0),
        faster=faster,
        faster_ratio=max((1 / float(drift.ratio[rank]) for rank in faster), default=1.0),
        evicted=tuple(settings.evict or ()),
        units=units,
        moved_bytes=sum(moved * problem.costs.unit_move.unit_bytes(family) for family, moved, _ in units),
        move_seconds=move_seconds(problem.costs, current, counts),
        lost_seconds=ownership.lost_seconds,
        now_seconds=problem.seconds(current),
        then_seconds=problem.seconds(counts),
    )


def _gained(before: Sequence[int], after: Sequence[int]) -> int:
    """Return the units that change owner."""
    return sum(max(0, a - b) for a, b in zip(after, before, strict=True))
