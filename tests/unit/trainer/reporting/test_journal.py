"""The lists of report.json."""

import pytest
from heterotp_api.policy import BalancingSettings
from heterotp_api.report import run_report
from heterotp_api.run_journal import MOST, DecisionRecord, RunJournal, bounded
from heterotp_api.summary import summary
from heterotp_api.trainer_status import TrainerStatus
from heterotp_trainer.balancing.effect import Effect
from heterotp_trainer.plans.ownership import MoveCase, MoveCause, Ownership, Proposal
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import Cause, WorkPlan
from heterotp_trainer.reporting.journal import FirstAndNewest, Journal
from heterotp_trainer.resharding.resharder import CompletedMove

NONE = (1.0, None)
POLICY = BalancingSettings(strategy="AUTO")
CASE = MoveCase(
    MoveCause.SPEEDS,
    (1,),
    4.0,
    (),
    1.0,
    (),
    (("heads", 2, 8), ("ffn", 24, 64), ("vocab", 7, 40)),
    4096.0,
    0.25,
    1.5,
    2.0,
    1.0,
)


@pytest.fixture
def journal():
    return Journal(2, ["cpu", "cuda:H200"])


def plan(number, cause=Cause.REDUCED, **more):
    return WorkPlan(number, POLICY, explained_id=number, cause=cause, reason="why", **more)


def test_the_first_and_the_newest_entries_are_kept():
    kept = FirstAndNewest(4)
    for number in range(4):
        kept.add(number)
    assert (kept.entries(), kept.left_out) == ((0, 1, 2, 3), 0)
    for number in range(4, 11):
        kept.add(number)
    assert (kept.entries(), kept.left_out) == ((0, 1, 9, 10), 7)
    assert bounded(tuple(range(11)), 4) == ((0, 1, 9, 10), 7)


def test_a_decision_is_kept_with_its_numbers(journal):
    made = plan(3, stragglers=(1,), predicted_seconds=0.5, untouched_seconds=0.75)
    journal.decided(
        41, WorkPlan(), made, [1.0, 4.0], (Effect(), Effect(pruned=0.25, migrated=0.5)), 0.125, 1767225600.0
    )
    (found,) = journal.document().model_dump(by_alias=True)["decisions"]
    assert found == {
        "attempt": 2,
        "iteration": 41,
        "time": "2026-01-01T00:00:00Z",
        "decisionId": 3,
        "strategy": "AUTO",
        "cause": "reduced",
        "reason": "why",
        "stragglers": ({"rank": 1, "slowdown": 4.0},),
        "reductions": ({"rank": 1, "prunedRatio": 0.25, "migratedRatio": 0.5},),
        "deletedShare": 0.125,
        "untouchedIterationSeconds": 0.75,
        "predictedIterationSeconds": 0.5,
    }


def test_a_move_has_the_numbers_of_its_proposal_and_its_decision_names_the_slow_rank(journal):
    proposal = Proposal(2, UnitPlan.even(2, 8, 64), (), (), False, CASE)
    before = plan(2, ownership=Ownership(proposal=proposal))
    after = plan(3, Cause.UNITS_MOVED)
    journal.moved(50, 3, CompletedMove(0.5, 4000.0), CASE, 0.0)
    journal.decided(50, before, after, [1.0, None], (), 0.0, 0.0)
    found = journal.document()
    assert [(each.rank, each.slowdown) for each in found.decisions[0].stragglers] == [(1, None)]
    (move,) = found.moves
    assert (move.heads, move.hidden_units, move.vocabulary_rows) == (2, 24, 7)
    assert (move.moved_bytes, move.seconds) == (4000.0, 0.5)
    assert (move.expected_seconds, move.decision_id, move.iteration) == (0.25, 3, 50)


def test_an_injection_has_a_beginning_and_an_end(journal):
    assert journal.injected(1, (NONE, NONE), 0.0) is None
    assert [each.rank for each in journal.injected(5, (NONE, (4.0, None)), 0.0)] == [1]
    assert journal.injected(6, (NONE, (4.0, None)), 0.0) is None
    assert len(journal.injected(9, ((2.0, "spin"), (3.0, None)), 60.0)) == 2
    assert journal.injected(12, ((2.0, "spin"), NONE), 60.0)[0].rank == 0
    found = [
        (each.rank, each.slowdown, each.mode, each.from_iteration, each.to_iteration)
        for each in journal.document().injections
    ]
    assert found == [(1, 4.0, "spin", 5, 9), (1, 3.0, "spin", 9, 12), (0, 2.0, "spin", 9, None)]
    first, _, last = journal.document().injections
    assert (first.from_time, first.to_time, last.to_time) == ("1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z", None)
    assert last.problem.startswith("mode spin: needs cuda")


class EndsMeanwhile(dict):
    """Injections of which another thread removes all, once the ranks have been read."""

    def __iter__(self):
        yield from list(self.keys())
        self.clear()


def test_an_injection_may_end_while_another_thread_reads_the_journal(journal):
    journal.injected(5, ((4.0, None), (2.0, None)), 0.0)
    journal._slowed = EndsMeanwhile(journal._slowed)
    assert [each.rank for each in journal.document().injections] == [0, 1]


def test_a_journal_goes_on_after_that_of_an_earlier_leader_whose_injections_end(journal):
    journal.decided(5, WorkPlan(), plan(1), [1.0, 1.0], (), 0.0, 0.0)
    journal.injected(5, (NONE, (4.0, None)), 0.0)
    after = Journal(1, ["cpu"])
    after.go_on(journal.document())
    assert after.document() == journal.document()
    assert after.injected(9, (NONE,), 60.0) is None
    after.decided(10, WorkPlan(), plan(2), [1.0], (), 0.0, 60.0)
    found = after.document()
    assert [each.decision_id for each in found.decisions] == [1, 2]
    assert [(each.rank, each.from_iteration, each.to_iteration) for each in found.injections] == [(1, 5, 9)]
    assert after.changes == 2


def test_shares_are_kept_where_they_change(journal):
    for iteration, owned in enumerate(([0.5, 0.5], [0.5, 0.5], [0.75, 0.25]), 1):
        journal.shares(iteration, owned)
    found = [(each.iteration, each.rank, each.share) for each in journal.document().shares]
    assert found == [(1, 0, 0.5), (1, 1, 0.5), (3, 0, 0.75), (3, 1, 0.25)]


def test_the_report_of_a_week_is_bounded(journal):
    for number in range(1, 20_001):
        journal.decided(30 * number, WorkPlan(), plan(number, stragglers=(1,)), [1.0, 4.0], (), 0.0, 0.0)
        journal.injected(30 * number, (NONE, (2.0 + number % 2, None)), 0.0)
        journal.moved(30 * number, number, CompletedMove(0.5, 4000.0), CASE, 0.0)
        journal.shares(30 * number, [0.5, 0.25 + 0.25 * (number % 2)])
    found = journal.document()
    assert len(found.decisions) == MOST["decisions"] == 300
    assert found.left_out.decisions == 20_000 - 300
    assert [found.decisions[0].decision_id, found.decisions[-1].decision_id] == [1, 20_000]
    assert found.left_out.moves == 20_000 - 300 and found.left_out.injections == 20_000 - 1 - 300
    assert found.left_out.shares == 20_001 - MOST["shares"]
    status = TrainerStatus(job="week", attempt=2, state="succeeded", started_at=0.0)
    document = run_report(status, [], summary([]), found)
    assert len(document.model_dump_json(by_alias=True)) < 600_000


def test_a_journal_goes_on_after_those_of_earlier_attempts():
    def decisions(attempt, *numbers):
        fields = {"attempt": attempt, "time": "", "strategy": "AUTO", "cause": "reduced", "reason": ""}
        return RunJournal(decisions=tuple(DecisionRecord(iteration=n, decision_id=n, **fields) for n in numbers))

    both = decisions(2, 1, 2).after(decisions(1, 1, 2, 3))
    assert [(each.attempt, each.decision_id) for each in both.decisions] == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]
    assert both.left_out.decisions == 0
    long = decisions(2, *range(300)).after(decisions(1, *range(300)))
    assert len(long.decisions) == 300 and long.left_out.decisions == 300
    assert decisions(3, 1).after(long).left_out.decisions == 301
