"""A gang that hangs and does not end itself is restarted; one with a known reason, or out of reach, is not."""

import pytest
from heterotp_api.trainer_status import TrainerStatus
from heterotp_operator.reconcile.observed import Progress, TrainerReport
from heterotp_operator.reconcile.progress import PATIENCE_SECONDS, deadline_seconds, hung
from support.reconcile_world import EPOCH, World, manifest

DEADLINE = 100


def report(**fields):
    given = {"job": "job", "attempt": 1, "state": "running", "started_at": EPOCH, "iteration": 7, **fields}
    return TrainerReport(TrainerStatus(**given), "", EPOCH)


STALLED = {"stalled_seconds": 40.0, "stalled_by": (2,), "stall": "rank 2 is still\ncomputing"}
SILENT = TrainerReport(None, "NoAnswer", EPOCH)
UNUSABLE = TrainerReport(None, "BadAnswer", EPOCH)


@pytest.fixture
def world():
    world = World(manifest(runPolicy={"progressDeadlineSeconds": DEADLINE}))
    world.trainer = report()
    return world.started()


def look(world, trainer, progress):
    world.trainer, world.progress = trainer, progress
    return world.plan()


LONG = DEADLINE + PATIENCE_SECONDS + 1
MOVED = Progress(idle=0.0, silent=0.0)


@pytest.mark.parametrize(
    ("trainer", "progress"),
    [
        (report(**STALLED | {"stalled_seconds": LONG}), MOVED),
        (report(**STALLED), Progress(idle=LONG, silent=0.0)),
        (report(**STALLED | {"stalled_seconds": float("nan")}), Progress(idle=LONG, silent=0.0)),
        (report(idle_seconds=LONG), Progress(idle=LONG, silent=0.0)),
        (SILENT, Progress(idle=LONG, silent=LONG)),
    ],
    ids=[
        *("stalls by its own report", "stalls as long as it was seen", "reports no number"),
        *("the same iteration again and again", "answered and is silent"),
    ],
)
def test_a_gang_that_hangs_is_restarted(world, trainer, progress):
    decision = look(world, trainer, progress)
    (bump,) = decision.actions
    assert (bump.attempt, bump.restarts) == (2, 1)
    world.reconcile()
    assert (world.phase, world.condition("Restarting")["reason"]) == ("Restarting", "NoProgress")


@pytest.mark.parametrize(
    ("trainer", "progress"),
    [
        (report(), Progress(idle=1e6, silent=0.0)),
        (report(idle_seconds=2.0), Progress(idle=1e6, silent=0.0)),
        (report(idle_seconds=1e6), MOVED),
        (report(idle_seconds=float("nan")), Progress(idle=1e6, silent=0.0)),
        (report(idle_seconds=1e6, state="starting"), Progress(idle=1e6, silent=0.0)),
        (report(**STALLED), Progress(idle=LONG - 2, silent=0.0)),
        (report(state="stopping", **STALLED | {"stalled_seconds": LONG}), MOVED),
        (report(state="starting", **STALLED | {"stalled_seconds": LONG}), MOVED),
        (report(attempt=0, **STALLED | {"stalled_seconds": LONG}), MOVED),
        (SILENT, None),
        (SILENT, Progress(idle=1e6, silent=LONG - 2)),
        (SILENT, Progress(idle=1e6, silent=1e6, cut_off=True)),
        (UNUSABLE, Progress(idle=1e6, silent=1e6)),
        (None, Progress(idle=1e6, silent=1e6)),
    ],
    ids=[
        *(
            "a known reason",
            "evaluates",
            "an iteration was seen",
            "reports no idle number",
            "prepares",
            "there is time",
            "the last checkpoint",
            "restores",
            "an earlier attempt",
        ),
        *("never answered", "silent not for long", "the operator is cut off", "answers unusably", "not polled yet"),
    ],
)
def test_other_gangs_are_left_alone(world, trainer, progress):
    decision = look(world, trainer, progress)
    assert (decision.actions, "Restarting" in world.true) == ((), False)


def test_the_operator_looks_again_when_the_time_is_over(world):
    decision = look(world, SILENT, Progress(idle=50.0, silent=LONG - 11))
    assert decision.requeue_after == pytest.approx(10.0)


def test_the_message_names_the_ranks_and_is_one_line(world):
    decision = look(world, report(**STALLED | {"stalled_seconds": LONG}), MOVED)
    (event,) = decision.events
    assert event.message == (
        "attempt 2 follows attempt 1: no iteration for 161 s after iteration 7; the others wait for rank 2; "
        "rank 0 reports: rank 2 is still computing"
    )


def test_hung_gangs_count_against_the_backoff_limit():
    world = World(manifest(runPolicy={"progressDeadlineSeconds": DEADLINE, "backoffLimit": 0}))
    world.trainer = report()
    world.started()
    world.trainer, world.progress = SILENT, Progress(idle=LONG, silent=LONG)
    world.settle()
    assert world.condition("Failed")["reason"] == "BackoffLimitExceeded"


def test_a_gang_that_lacks_a_running_pod_is_not_judged(world):
    world.trainer, world.progress = SILENT, Progress(idle=LONG, silent=LONG)
    world.play("job-b-0-1", "Pending")
    assert hung(world.observe()) == (None, None)


@pytest.mark.parametrize(
    ("iteration", "seconds"),
    [(None, 300.0), (0.1, 300.0), (60.0, 600.0), (float("inf"), 300.0), (1e300, 864_000.0)],
)
def test_without_a_deadline_it_is_ten_iterations_and_at_least_300_seconds(iteration, seconds):
    world = World(manifest())
    world.trainer = report()
    world.started()
    world.trainer = report(iteration_seconds=iteration)
    assert deadline_seconds(world.observe()) == seconds
