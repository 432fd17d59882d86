"""Stalled: since when no iteration ends, where the ranks are, and one write however long it lasts."""

import pytest
from heterotp_api.status import JobStatus
from heterotp_api.trainer_status import TrainerStatus
from heterotp_operator.reconcile.observed import TrainerReport, stamp
from heterotp_operator.status_throttle import due
from support.reconcile_world import EPOCH, World, labelled, manifest

WHERE = "rank 1 is still computing (data, since 11:02:03 UTC), the others wait for the sum of fc2"


def stalled(seconds=12.0, iteration=40, ranks=(1,), where=WHERE, **fields):
    """Return rank 0's report of a gang that stalls."""
    found = {"stalled_seconds": seconds, "stalled_by": ranks, "stall": where, **fields}
    return report(iteration, **found)


def report(iteration=40, state="running", attempt=1, **fields):
    status = TrainerStatus(
        job="job", attempt=attempt, state=state, started_at=EPOCH, iteration=iteration, ranks=(), **fields
    )
    return TrainerReport(status, "", EPOCH)


def look(world, trainer):
    """Let rank 0 report something, settle, and return the events that came of it."""
    world.trainer = trainer
    before = len(world.events)
    world.settle()
    return [(event.type, event.reason, event.message) for event in world.events[before:]]


@pytest.fixture
def world():
    world = World(labelled(manifest())).started()
    look(world, report(39))
    return world


def test_a_stall_is_a_condition_an_event_and_a_block(world):
    assert world.condition("Stalled") == {} and "stall" not in world.status
    since = stamp(EPOCH - 12)
    words = f"no iteration since {since}; {WHERE}"
    assert look(world, stalled()) == [("Warning", "NoIteration", words)]
    condition = world.condition("Stalled")
    assert (condition["status"], condition["reason"], condition["message"]) == ("True", "NoIteration", words)
    assert world.status["stall"] == {"since": since, "iteration": 40, "ranks": [1]}
    assert (world.phase, world.status["waitingFor"]) == ("Running", "Iteration")
    JobStatus.model_validate(world.status)


def test_a_stall_of_an_own_command_is_shown_too():
    template = {"spec": {"containers": [{"name": "trainer", "command": ["train"]}]}}
    world = World(manifest(training=False, template=template)).started()
    look(world, stalled())
    assert (world.condition("Stalled")["status"], world.status["waitingFor"]) == ("True", "Iteration")


def test_a_stall_that_lasts_is_written_once(world):
    look(world, stalled())
    written = world.status
    for seconds in range(5, 305, 5):
        world.now = EPOCH + seconds
        world.trainer = stalled(12.0 + seconds + 0.4 * (seconds % 3))
        wanted = world.plan().status
        assert wanted["stall"] == written["stall"] and wanted["conditions"] == written["conditions"]
        assert not due(written, wanted, 1e9)


def test_ranks_that_alternate_are_written_every_30_seconds_at_most(world):
    look(world, stalled())
    written = world.status
    world.trainer = stalled(ranks=(2,), where="rank 2 is still computing")
    assert world.plan().status["stall"]["ranks"] == [2]
    assert not due(written, world.plan().status, 29.0)
    assert due(written, world.plan().status, 30.0)


def test_the_next_stall_has_its_own_beginning(world):
    look(world, stalled())
    world.now += 100
    assert look(world, stalled(iteration=41)) == []
    assert world.status["stall"] == {"since": stamp(EPOCH + 88), "iteration": 41, "ranks": [1]}


def test_the_end_of_a_stall(world):
    look(world, stalled())
    assert look(world, report(41)) == [("Normal", "IterationsEnd", "iterations end again")]
    condition = world.condition("Stalled")
    assert (condition["status"], condition["reason"], world.status["waitingFor"]) == ("False", "IterationsEnd", "")
    assert "stall" not in world.status
    assert look(world, report(42)) == []


def test_a_stall_is_kept_while_rank_0_does_not_answer(world):
    look(world, stalled())
    before = world.status["stall"]
    assert look(world, TrainerReport(None, "NoAnswer", EPOCH)) == []
    assert world.status["stall"] == before and world.condition("Stalled")["status"] == "True"


def test_a_new_attempt_does_not_stall(world):
    look(world, stalled())
    world.end("job-b-0-1", 1)
    world.trainer = None
    for _ in range(4):
        world.settle()
        world.vanish()
        world.now += 60
    assert (world.status["attempt"], world.condition("Stalled")["status"]) == (2, "False")
    assert "stall" not in world.status


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1e300, 1e300])
def test_seconds_that_cannot_be_are_bounded(world, seconds):
    look(world, stalled(seconds))
    assert stamp(0.0) <= world.status["stall"]["since"] <= stamp(EPOCH)


def test_what_rank_0_reports_is_bounded_and_clean(world):
    look(world, stalled(ranks=(7, 2, 1, 2, 10**15), where="\x1b[31mrank 1\n\u202egone " + "x" * 100_000))
    assert world.status["stall"]["ranks"] == [1, 2]
    message = world.condition("Stalled")["message"]
    assert len(message) < 600 and message.isprintable() and "rank 1" in message
