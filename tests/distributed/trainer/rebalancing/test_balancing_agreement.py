"""Ranks decide alone and alike: all change at one iteration, who differs is named, moving work changes no number."""

import itertools
import json
import os
import signal
import urllib.request

import pytest
from heterotp_api.names import EXIT_PEER_LOST, EXIT_STOPPED, LEASE_HEADER
from support.balancing_gang import CHI4, LONG, body, sabotaged, write_control
from support.launched import Launched

RANKS = 3
PRIMITIVES = ("broadcastReduce", "scatterGather")


def errors(run):
    return {
        line.split("]")[0]: line for line in run.text().splitlines() if line.startswith("[rank") and "error:" in line
    }


@pytest.mark.parametrize("what", ["columns pruned", "number"])
def test_a_rank_that_decides_otherwise_is_named_by_all(launch, what):
    write_control(launch.workdir, 1, "ZERO", zero={"fixedRatio": 0.5, "ranks": [0]})
    run = launch(body(iterations=LONG), command=sabotaged(f"decides otherwise: {what}"))
    assert run.wait() == 1, run.text()
    words = "error: the plan's hash of ranks [1] differs from rank 0's"
    assert [words in line for line in errors(run).values()] == [True] * RANKS, run.text()
    assert "Traceback" not in run.text()


@pytest.mark.parametrize("what", ["columns migrated", "primitive"])
def test_ranks_that_move_columns_otherwise_do_not_hang_for_ever(launch, what):
    """Their transfers do not fit, and so they may wait for each other before they come to compare plans."""
    write_control(launch.workdir, 1, "MIG", mig={"fixedRatio": 0.5, "ranks": [0]})
    run = launch(body(iterations=LONG, collectiveTimeoutSeconds=4), command=sabotaged(f"decides otherwise: {what}"))
    assert run.wait() in (1, EXIT_PEER_LOST), run.text()
    assert len(errors(run)) == RANKS and "Traceback" not in run.text(), run.text()
    assert run.history()[-1]["iteration"] < 12  # of 8 iterations under the same plan, and not many more


def holds(run):
    """Return per rank the plans and injections that it printed, and from which iteration on they hold."""
    lines = [
        line.partition("] HOLDS ")[2] for line in run.text().splitlines()
    ]  # not a last line that the launcher quotes
    printed = [json.loads(line) for line in lines if line]
    return [[each for each in printed if each["rank"] == rank] for rank in range(RANKS)]


def test_policies_and_injections_act_without_telemetry(launch):
    """Status, history and report are switched off; times are measured all the same, and so a straggler is found."""
    write_control(launch.workdir, 1, "ZERO", injections=[CHI4], window=2)
    run = launch(body(iterations=60), command=sabotaged("prints what holds, without telemetry"))
    assert run.wait() == 0, run.text()
    held = holds(run)
    assert [any(each["chi"] == 4 for each in printed) for printed in held] == [False, False, True]
    assert all(printed[-1]["plan"] > 1 for printed in held), run.text()  # 1: the policy came, 2: rank 2 is a straggler
    assert not [name for name in ("status.json", "history.jsonl", "report.json") if (run.workdir / name).exists()]


TURNS = {"uid": "turns", "ranks": [0, 1], "slowdown": 2, "pattern": {"roundRobin": {"every": {"iterations": 3}}}}
BY_TIME = {"uid": "by time", "ranks": [2], "slowdown": 1.5, "start": {"seconds": 0.5}}
BY_NUMBER = {"uid": "by number", "ranks": [2], "slowdown": 1.25, "start": {"iteration": 30}}


def test_documents_plans_and_injections_hold_from_the_same_iteration_on_every_rank(launch):
    run = launch(body(iterations=LONG), command=sabotaged("prints what holds"))

    def until(what, holds):
        run.until(what, lambda: holds(run.read("status.json") or {"appliedGeneration": 0, "ranks": []}))

    run.reach(3)
    write_control(run.workdir, 1, "MIG", [CHI4])
    until("a rank gives columns away", lambda status: any(rank["migratedRatio"] for rank in status["ranks"]))
    write_control(run.workdir, 2, "ZERO", [CHI4, TURNS, BY_TIME, BY_NUMBER], zero={"fixedRatio": 0.5, "ranks": [0]})
    until("generation 2 in force", lambda status: status["appliedGeneration"] == 2)
    run.until("injections took turns", lambda: run.text().count("[2.0, 1.0, ") > 2 * RANKS)
    run.until("all injections hold", lambda: "7.5]" in run.text())
    write_control(run.workdir, 3)
    until("generation 3 in force", lambda status: status["appliedGeneration"] == 3)
    os.kill(run.ranks()[1], signal.SIGTERM)
    assert run.wait() == EXIT_STOPPED, run.text()
    every = holds(run)
    for rank, mine in enumerate(every):
        assert [each["chi"] for each in mine] == [each["asked"][rank] for each in mine]
    common = [[each | {"rank": None, "chi": None} for each in mine] for mine in every]
    assert common[0] == common[1] == common[2]
    assert [*dict.fromkeys(each["generation"] for each in common[0])] == [0, 1, 2, 3]
    assert len({each["plan"] for each in common[0]}) > 3
    history = {line["iteration"]: (line["generation"], line["decisionId"]) for line in run.history()}
    recorded = [each for each in common[0] if each["iteration"] in history]
    assert [history[each["iteration"]] for each in recorded] == [
        (each["generation"], each["plan"]) for each in recorded
    ]
    assert len(recorded) >= len(common[0]) - 1  # what holds after the last iteration held in none


def test_without_polls_a_lease_ends_injections_at_the_same_iteration_on_every_rank(launch):
    run = launch(body(iterations=LONG), command=sabotaged("prints what holds"))
    run.reach(3)
    write_control(run.workdir, 1, "ZERO", [CHI4], lease=2, zero={"fixedRatio": 0.5, "ranks": [0]})
    status = lambda: run.read("status.json") or {}  # noqa: E731
    run.until("the injection holds", lambda: "[1.0, 1.0, 4.0]" in run.text())
    run.until("the lease is over", lambda: status().get("leaseExpired"))
    assert [each["state"] for each in status()["injections"]] == ["lapsed"]
    assert status()["ranks"][0]["prunedRatio"] > 0.4  # the policy stays
    poll = urllib.request.Request(f"http://127.0.0.1:{run.port + 1}/status", headers={LEASE_HEADER: "operator"})
    urllib.request.urlopen(poll, timeout=30).close()
    run.until("it is back", lambda: run.text().count("[1.0, 1.0, 4.0]") >= 2 * RANKS)
    os.kill(run.ranks()[1], signal.SIGTERM)
    assert run.wait() == EXIT_STOPPED, run.text()
    slowed = [[(each["iteration"], each["asked"]) for each in mine] for mine in holds(run)]
    assert slowed[0] == slowed[1] == slowed[2]
    turns = [asked[2] for _, asked in slowed[0]]
    assert [chi for before, chi in itertools.pairwise([0.0, *turns]) if chi != before][:4] == [1.0, 4.0, 1.0, 4.0]


# -- moving work changes no number ------------------------------------------------------------------------

ITERATIONS = 12
# The same products in other sums: 2e-7 was seen, and half of a rank's columns left out changes a loss by 5e-2. In bf16
# a part that is computed elsewhere is rounded once more, by 2^-9 = 2e-3 of itself, as are only some parts: 1e-3.
TOLERANCE = {"fp32": 1e-5, "bf16": 5e-3}


def losses(folder, **training):
    """Train a little under the document in the folder, if any; return the losses and the run."""
    run = Launched(folder, body(iterations=ITERATIONS, **training))
    assert run.wait() == 0, run.text()
    return [line["loss"] for line in run.history()], run


@pytest.fixture(scope="module")
def unmoved(tmp_path_factory):
    """Return the losses of a precision with all work left where it is; each is trained once."""
    return {
        precision: losses(tmp_path_factory.mktemp(f"unmoved-{precision}"), precision=precision)[0]
        for precision in TOLERANCE
    }


@pytest.mark.parametrize("primitive", PRIMITIVES)
@pytest.mark.parametrize(
    "training",
    [{"precision": "fp32"}, {"precision": "bf16"}, {"precision": "fp32", "recompute": True, "accumulate": 2}],
    ids=["fp32", "bf16", "recompute-and-accumulate"],
)
def test_losses_under_migration_are_those_without(unmoved, tmp_path, training, primitive):
    write_control(tmp_path, 1, "MIG", mig={"fixedRatio": 0.5, "ranks": [0], "primitive": primitive})
    found, run = losses(tmp_path, **training)
    assert [rank["migratedRatio"] for rank in run.read("report.json")["ranks"]] == pytest.approx([0.5, 0, 0], abs=0.01)
    assert sum(line["decisionId"] == 1 for line in run.history()) >= ITERATIONS - 3
    precision = training["precision"]
    assert len(found) == ITERATIONS and found == pytest.approx(unmoved[precision], rel=TOLERANCE[precision])
