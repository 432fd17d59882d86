"""Keeps what happens in an attempt for report.json, in bounded memory: decisions, moves, injections, shares."""

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from heterotp_api.formatting import utc_time
from heterotp_api.run_journal import (
    MOST,
    DecisionRecord,
    InjectionRecord,
    LeftOut,
    MoveRecord,
    ReducedRank,
    RunJournal,
    ShareRecord,
    SlowRank,
)
from heterotp_api.slowdown import SlowdownMode

from heterotp_trainer.balancing.effect import Effect
from heterotp_trainer.devices.slowdown import mode_of, refusal
from heterotp_trainer.plans.ownership import MoveCase
from heterotp_trainer.plans.work_plan import Cause, WorkPlan
from heterotp_trainer.resharding.resharder import CompletedMove

Entry = TypeVar("Entry")
Asked = Sequence[tuple[float, SlowdownMode | None]]
ABOUT_MOVES = (Cause.UNITS_MOVED, Cause.MEMORY_REFUSED)


class FirstAndNewest(Generic[Entry]):
    """The first and the newest entries of a list, and the number of those between them that were left out."""

    def __init__(self, most: int) -> None:
        self._first: list[Entry] = []
        self._newest: deque[Entry] = deque(maxlen=most - most // 2)
        self._most_first = most // 2
        self.left_out = 0

    def add(self, entry: Entry) -> None:
        """Add an entry, in place of the oldest of the newest ones where there is no room."""
        if len(self._first) < self._most_first:
            self._first.append(entry)
            return
        self.left_out += len(self._newest) == self._newest.maxlen
        self._newest.append(entry)

    def entries(self) -> tuple[Entry, ...]:
        """Return the entries that are kept, in order."""
        return (*self._first, *self._newest)


def case_of(before: WorkPlan, plan: WorkPlan) -> MoveCase | None:
    """Return the numbers of the move that a plan is about, which the plan `before` proposed; None: of none."""
    proposal = before.ownership.proposal
    return proposal.case if proposal is not None and plan.cause in ABOUT_MOVES else None


class Journal:
    """The journal of one attempt; written by the training loop.

    Iterations: the first one in which something holds. now: unix seconds, of the log's line about the same, too.
    """

    def __init__(self, attempt: int, devices: Sequence[str]) -> None:
        """devices: of each rank, `cuda:...`, `cpu` or `emulated`."""
        self._attempt = attempt
        self._kinds = [device.partition(":")[0] for device in devices]
        self._decisions: FirstAndNewest[DecisionRecord] = FirstAndNewest(MOST["decisions"])
        self._moves: FirstAndNewest[MoveRecord] = FirstAndNewest(MOST["moves"])
        self._injections: FirstAndNewest[InjectionRecord] = FirstAndNewest(MOST["injections"])
        self._shares: FirstAndNewest[ShareRecord] = FirstAndNewest(MOST["shares"])
        self.changes = 0  # how often anything was added
        self._earlier: RunJournal | None = None
        self._asked: Asked = ()
        self._slowed: dict[int, InjectionRecord] = {}  # by rank: injections that have not ended
        self._owned: Sequence[float] = ()

    def go_on(self, earlier: RunJournal) -> None:
        """Put what was kept of this attempt before all that follows; call it before anything else."""
        self._earlier = earlier

    def document(self) -> RunJournal:
        """Return the journal up to now; injections that have not ended come last. For any thread."""
        slowed = self._slowed.copy()  # one step, in which the training loop changes nothing
        running = tuple(slowed[rank] for rank in sorted(slowed))
        found = RunJournal(
            decisions=self._decisions.entries(),
            moves=self._moves.entries(),
            injections=(*self._injections.entries(), *running),
            shares=self._shares.entries(),
            left_out=LeftOut(
                decisions=self._decisions.left_out,
                moves=self._moves.left_out,
                injections=self._injections.left_out,
                shares=self._shares.left_out,
            ),
        )
        return found if self._earlier is None else found.after(self._earlier)

    def decided(
        self,
        iteration: int,
        before: WorkPlan,
        plan: WorkPlan,
        chi: Sequence[float | None],
        effects: Sequence[Effect],
        deleted_share: float,
        now: float,
    ) -> None:
        """Add the decision for `plan`, which follows the plan `before`; chi, effects: of each rank."""
        case = case_of(before, plan)
        stragglers = plan.stragglers or (case.slower if case is not None else ())
        record = DecisionRecord(
            attempt=self._attempt,
            iteration=iteration,
            time=utc_time(now),
            decision_id=plan.explained_id,
            strategy=plan.settings.strategy if plan.settings is not None else "None",
            cause=plan.cause.value,
            reason=plan.reason,
            stragglers=tuple(SlowRank(rank=rank, slowdown=chi[rank]) for rank in stragglers),
            reductions=tuple(
                ReducedRank(rank=rank, pruned_ratio=each.pruned, migrated_ratio=each.migrated)
                for rank, each in enumerate(effects)
                if each.pruned or each.migrated
            ),
            deleted_share=deleted_share,
            untouched_iteration_seconds=plan.untouched_seconds,
            predicted_iteration_seconds=plan.predicted_seconds,
        )
        self._decisions.add(record)
        self.changes += 1

    def moved(self, iteration: int, decision_id: int, moved: CompletedMove, case: MoveCase | None, now: float) -> None:
        """Add a move that decision `decision_id` asked for; case: its numbers, where they are known."""
        units = {family: count for family, count, _ in case.units} if case is not None else {}
        record = MoveRecord(
            attempt=self._attempt,
            iteration=iteration,
            time=utc_time(now),
            decision_id=decision_id,
            heads=units.get("heads", 0),
            hidden_units=units.get("ffn", 0),
            vocabulary_rows=units.get("vocab", 0),
            moved_bytes=moved.nbytes,
            seconds=moved.seconds,
            expected_seconds=case.move_seconds if case is not None else None,
        )
        self._moves.add(record)
        self.changes += 1

    def injected(self, iteration: int, asked: Asked, now: float) -> tuple[InjectionRecord, ...] | None:
        """Take each rank's (chi, mode) of `iteration`; return the injections in force, None where nothing changed."""
        self._end_earlier(iteration, now)
        if asked == self._asked or not (self._asked or any(chi > 1 for chi, _ in asked)):
            return None
        before, self._asked = self._asked or ((1.0, None),) * len(asked), asked
        for rank, (was, becomes) in enumerate(zip(before, asked, strict=True)):
            if was != becomes:
                self._change(iteration, rank, *becomes, utc_time(now))
        self.changes += 1
        return tuple(self._slowed[rank] for rank in sorted(self._slowed))

    def _end_earlier(self, iteration: int, now: float) -> None:
        """Let injections of before end where this journal begins; those that hold on begin anew in it."""
        if self._earlier is None:
            return
        end = {"to_iteration": iteration, "to_time": utc_time(now)}
        ended = [each if each.to_iteration else each.model_copy(update=end) for each in self._earlier.injections]
        if tuple(ended) != self._earlier.injections:
            self._earlier = self._earlier.model_copy(update={"injections": tuple(ended)})
            self.changes += 1

    def _change(self, iteration: int, rank: int, chi: float, mode: SlowdownMode | None, moment: str) -> None:
        """End the injection on a rank, and begin the one with this chi."""
        if rank in self._slowed:
            ended = self._slowed.pop(rank)
            self._injections.add(ended.model_copy(update={"to_iteration": iteration, "to_time": moment}))
        if chi > 1:
            self._slowed[rank] = InjectionRecord(
                attempt=self._attempt,
                rank=rank,
                slowdown=chi,
                mode=mode_of(mode, self._kinds[rank]),
                from_iteration=iteration,
                from_time=moment,
                problem=refusal(mode, self._kinds[rank]),
            )

    def shares(self, iteration: int, owned: Sequence[float]) -> None:
        """Take each rank's share of the units in `iteration`."""
        if owned == self._owned:
            return
        before: Sequence[float | None] = self._owned or [None] * len(owned)
        self._owned = list(owned)
        for rank, (was, share) in enumerate(zip(before, owned, strict=True)):
            if was != share:
                self._shares.add(ShareRecord(attempt=self._attempt, rank=rank, iteration=iteration, share=share))
        self.changes += 1
