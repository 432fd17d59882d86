"""Why ranks are slow, as rank 0 reports it: in the status, in conditions and as events; bounded, of known kinds."""

import pytest
from heterotp_api.status import MAX_CAUSES
from heterotp_api.trainer_status import TrainerCause, TrainerRank, TrainerStatus
from heterotp_operator.reconcile.observed import TrainerReport, stamp
from heterotp_operator.status_throttle import due
from support.reconcile_world import EPOCH, World, labelled, manifest, policy

THROTTLED = ("cpuLimit", 0.6123, 0.5)
WORDS = "its container was throttled by its CPU limit of 0.5 CPUs 60 % of the time"


def report(*causes, chi=4.0, slow=2, state="running"):
    """Return a report in which one rank is slow; causes: (rank, kind, share, amount)."""
    ranks = tuple(
        TrainerRank(rank=r, tp_rank=r, device="cpu", slowdown=chi if r == slow else 1.0, straggler=r == slow)
        for r in range(3)
    )
    told = tuple(TrainerCause(rank=r, kind=k, share=s, amount=a) for r, k, s, a in causes)
    status = TrainerStatus(job="job", attempt=1, state=state, started_at=EPOCH, ranks=ranks, causes=told)
    return TrainerReport(status, "", EPOCH)


def look(world, *args, **fields):
    """Let rank 0 report, settle, and return reasons and messages of the events that came of it."""
    world.trainer, before = report(*args, **fields), len(world.events)
    world.settle()
    return [(event.reason, event.message) for event in world.events[before:]]


@pytest.fixture
def world():
    return World(labelled(manifest())).started()


def test_a_cause_is_in_the_status_the_condition_and_an_event(world):
    events = look(world, (2, *THROTTLED))
    assert world.status["causes"] == [{"rank": 2, "kind": "cpuLimit", "share": 0.6, "amount": 0.5}]
    slow = f"rank 2 on node node-1 is 4.0x slower since {stamp(EPOCH)}: {WORDS}"
    assert world.condition("Straggling")["message"] == slow
    found = f"rank 2 is slow: {WORDS}; raise the limit, or leave it to AUTO"
    assert events == [("Straggling", slow), ("CauseFound", found)]


def test_a_cause_that_is_found_later_or_becomes_the_main_one_is_one_event(world):
    assert [reason for reason, _ in look(world)] == ["Straggling"]
    assert "causes" not in world.status
    assert [reason for reason, _ in look(world, (2, *THROTTLED))] == ["CauseFound"]
    assert look(world, (2, "cpuLimit", 0.2, 0.5), (2, "ioPressure", 0.1, None)) == []
    assert look(world, (2, "ioPressure", 0.5, None), (2, *THROTTLED)) == []
    assert look(world) == [] and "causes" not in world.status


def test_an_injection_is_no_event_and_is_named_once(world):
    ((reason, message),) = look(world, (2, "injection", 0.75, 4.0))
    assert reason == "Straggling" and message.endswith(f"since {stamp(EPOCH)}")
    assert world.status["causes"][0] == {"rank": 2, "kind": "injection", "share": 0.8, "amount": 4.0}


def test_the_advice_to_replace_a_rank_has_its_cause(world):
    world.put(policy("p", strategy="RESHARD", replaceAfterSeconds=0))
    look(world, (2, "gpuThermal", 0.9, None), chi=9.0)
    words = "its GPU was hot, which lowered the clock 90 % of the time (replaceThreshold 2, replaceAfterSeconds 0)"
    assert words in world.condition("ReplacementAdvised")["message"]


def test_kinds_of_a_newer_trainer_and_repetitions_are_left_out(world):
    look(world, (2, "moonlight", 0.9, None), (2, *THROTTLED), (2, "cpuLimit", 0.1, 9.0))
    assert world.status["causes"] == [{"rank": 2, "kind": "cpuLimit", "share": 0.6, "amount": 0.5}]
    look(world, *((n, "data", 0.5, None) for n in range(16)))
    assert len(world.status["causes"]) == MAX_CAUSES


def test_of_more_causes_than_are_shown_those_that_are_shown_stay(world):
    many = [(rank, "data", 0.5, None) for rank in range(MAX_CAUSES + 2)]
    look(world, *many)
    shown = {each["rank"] for each in world.status["causes"]}
    look(world, *reversed(many))
    assert {each["rank"] for each in world.status["causes"]} == shown


def test_causes_stay_while_rank_0_does_not_answer(world):
    look(world, (2, *THROTTLED))
    world.trainer = TrainerReport(None, "NoAnswer", EPOCH)
    world.settle()
    assert world.status["causes"][0]["kind"] == "cpuLimit"


def test_a_new_cause_is_written_at_once_and_its_numbers_later():
    def status(*causes):
        return {"phase": "Running", "causes": [{"rank": r, "kind": k, "share": s} for r, k, s in causes]}

    written = status((2, "cpuLimit", 0.6), (1, "data", 0.5))
    assert due(written, status((2, "cpuLimit", 0.6)), 0.0)
    assert due({"phase": "Running"}, written, 0.0)
    noise = status((1, "data", 0.9), (2, "cpuLimit", 0.1))
    assert not due(written, noise, 1.0)
    assert due(written, noise, 30.0)
