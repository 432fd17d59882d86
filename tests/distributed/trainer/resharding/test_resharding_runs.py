"""Gangs whose units move while they train: from a slow-down to its end, over a restart, over every kind of death."""

import json
import os
import signal

import pytest
from heterotp_api.names import EXIT_STOPPED
from heterotp_api.trainer_status import TrainerStatus
from heterotp_cli.verbs.explanation import explain
from heterotp_cli.verbs.view import of_run
from support.balancing_gang import CHI4, LONG, body, sabotaged, write_control
from support.launched import Launched

RANKS = 3
HEADS, UNITS = 9, 288
LONGEST = 80  # iterations that any of these trainings comes to
PLACES = ("reserve", "move a layer", "send units", "take units", "rebind", "after a move")


def status_of(run):
    return run.read("status.json") or {"ranks": [], "moves": 0, "appliedGeneration": 0}


def owned(status):
    return [(rank["heads"], rank["hiddenUnits"]) for rank in status["ranks"]]


def moved(run, times=1):
    return run.until(f"units moved {times} times", lambda: status_of(run)["moves"] >= times and status_of(run))


def told_of_new_shares(status):
    """Return the status once its medians are of iterations under new shares, which are faster than the first."""
    untouched, slow = status.get("untouchedIterationSeconds"), status["ranks"][2]
    return status if slow["slowdown"] and untouched and status["iterationSeconds"] < untouched else None


def losses(run):
    return {line["iteration"]: line["loss"] for line in run.history() if line["loss"] is not None}


def test_units_leave_a_slow_rank_at_one_iteration_and_return(launch):
    write_control(launch.workdir, 1, "AUTO", [CHI4])
    run = launch(body(iterations=LONG), command=sabotaged("prints what holds"))
    status = moved(run)
    run.until("shares and times of now are shown", lambda: owned(status_of(run))[2][1] < UNITS // RANKS)
    status = run.until("times of the new shares", lambda: told_of_new_shares(status_of(run)))
    heads, units = zip(*owned(status), strict=True)
    assert (sum(heads), sum(units)) == (HEADS, UNITS)
    assert units[2] < 0.5 * units[0] and heads[2] < heads[0]
    slow = status["ranks"][2]
    assert 3 < slow["slowdown"] < 6 and not slow["straggler"]  # a busy machine blurs sleeps
    assert "x slower than expected: " in status["reason"]
    parsed = TrainerStatus.model_validate_json(json.dumps(status))
    words = explain(of_run(parsed, (), "running"), 0.0, "heterotp policy run")
    assert "Rank 2, " in words and "units have moved to other ranks. Without it an iteration would take" in words
    write_control(launch.workdir, 2, "AUTO")
    status = moved(run, 2)
    # small products write_control a speed only roughly, above all on a busy machine: even shares, or nearly so
    run.until("its units are back", lambda: owned(status_of(run))[2][1] > 0.75 * UNITS / RANKS)
    os.kill(run.ranks()[1], signal.SIGTERM)
    assert run.wait() == EXIT_STOPPED, run.text()
    printed = [json.loads(line) for line in (line.partition("] HOLDS ")[2] for line in run.text().splitlines()) if line]
    plans = [[(each["iteration"], each["hash"]) for each in printed if each["rank"] == rank] for rank in range(RANKS)]
    assert len({hash_ for _, hash_ in plans[0]}) > 4
    assert all(a == b == c for a, b, c in zip(*plans, strict=False))  # the last change may not have come to all


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The losses of training in which nothing moves, by iteration."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write_control(folder, 1, "None")
    run = Launched(folder, body(iterations=LONGEST))
    assert run.wait() == 0, run.text()
    return losses(run)


def as_undisturbed(run, undisturbed, attempt=2):
    """Return the first iteration of an attempt, all losses of which are those of undisturbed training."""
    found = {line["iteration"]: line["loss"] for line in run.history() if line["attempt"] == attempt and line["loss"]}
    for iteration, loss in found.items():
        # other sums over ranks, in fp32, over as many Adam steps
        assert loss == pytest.approx(undisturbed[iteration], rel=5e-3)
    return min(found)


def test_training_goes_on_from_a_checkpoint_of_other_shares(launch, undisturbed):
    write_control(launch.workdir, 1, "AUTO", [CHI4])
    run = launch(body(iterations=LONG))
    run.reach(moved(run)["iteration"] + 5)
    os.kill(run.ranks()[0], signal.SIGTERM)
    assert run.wait() == EXIT_STOPPED, run.text()
    stopped = max(losses(run))
    write_control(launch.workdir, 2, "None")
    again = launch(body(iterations=stopped + 6), attempt=2)
    assert again.wait() == 0, again.text()
    assert stopped < as_undisturbed(again, undisturbed) <= stopped + 3


def test_without_memory_on_one_rank_nothing_moves_anywhere(launch):
    write_control(launch.workdir, 1, "AUTO", [CHI4])
    run = launch(body(iterations=LONG), command=sabotaged("no memory"))
    reason = lambda: status_of(run).get("reason", "")  # noqa: E731
    words = f"; rank {RANKS - 1} lacked memory for it: units stay where they are"
    run.until("the reason is in the status", lambda: reason().endswith(words))
    run.reach(status_of(run)["iteration"] + 20)
    assert status_of(run)["moves"] == 0
    assert owned(status_of(run)) == [(HEADS // RANKS, UNITS // RANKS)] * RANKS


# the last rank dies: it is the one that loses units, but where one that gains them is wanted
@pytest.mark.parametrize(("place", "slow"), [(place, 0 if place == "take units" else 2) for place in PLACES])
def test_whoever_dies_in_a_move_the_gang_goes_on_from_its_checkpoint(launch, undisturbed, place, slow):
    checkpoint = {"everyIterations": 4}
    write_control(launch.workdir, 1, "AUTO", [{**CHI4, "ranks": [slow]}])
    run = launch({**body(iterations=LONG), "checkpoint": checkpoint}, command=sabotaged(f"die in {place}"))
    assert run.wait() == 128 + signal.SIGKILL, run.text()
    died = max(losses(run))
    write_control(launch.workdir, 2, "None")
    again = launch({**body(iterations=died + 6), "checkpoint": checkpoint}, attempt=2)
    assert again.wait() == 0, again.text()
    resumed = again.read("status.json")["resumedFrom"]
    assert 0 < resumed <= died + 1
    assert as_undisturbed(again, undisturbed) == resumed + 1
