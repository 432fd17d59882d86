"""The write rule: facts at once, numbers when one jumps or after 30 s."""

import math
import random

import pytest
from heterotp_api.trainer_status import TrainerRank, TrainerStatus
from heterotp_operator.reconcile.observed import TrainerReport
from heterotp_operator.status_throttle import ANSWER_SECONDS, GATHER_SECONDS, due, due_later, patience
from support.reconcile_world import EPOCH, World, manifest

BASE = {
    "phase": "Running",
    "observedGeneration": 1,
    "conditions": [{"type": "Running", "status": "True"}],
    "training": {"iteration": 1000, "loss": 2.0},
    "ranks": [{"rank": 0, "computeSeconds": 0.1}],
}


def changed(**fields):
    return {**BASE, **fields}


@pytest.mark.parametrize(
    ("wanted", "age", "expected"),
    [
        (BASE, 1e9, False),
        (changed(phase="Failed"), 0, True),
        (changed(observedGeneration=2), 0, True),
        (changed(conditions=[]), 0, True),
        (changed(waitingFor="Rendezvous"), 0, True),
        (changed(training={"iteration": 1010, "loss": 2.0}), 29, False),
        (changed(training={"iteration": 1010, "loss": 2.0}), 30, True),
        (changed(training={"iteration": 1000, "loss": 1.8}), 29, False),
        (changed(training={"iteration": 1000, "loss": 1.8}), 30, True),
        (changed(training={"iteration": 1000, "loss": 2.0, "iterationSeconds": 0.1}), 0, True),
        (changed(ranks=[{"rank": 0, "computeSeconds": 0.2}]), 0, False),
        (changed(ranks=[{"rank": 7, "computeSeconds": 0.1}]), 0, False),
        (changed(ranks=[{"rank": 0, "computeSeconds": 0.1, "injectionProblem": "x"}]), 0, True),
        (changed(ranks=[{"rank": 0, "computeSeconds": 0.1, "straggler": True}]), 0, True),
        (changed(ranks=[]), 0, True),
        (changed(balancing={"strategy": "AUTO"}), 0, True),
    ],
)
def test_table(wanted, age, expected):
    assert due(BASE, wanted, age) is expected


def test_counters_of_the_other_manager_are_no_reason():
    assert not due({**BASE, "attempt": 2, "restarts": 1}, BASE, 0)


def test_absent_and_empty_are_the_same():
    assert not due(BASE, changed(workerGroups=[], completionTime=None), 0)


def test_a_prediction_is_a_number():
    old, new = (changed(balancing={"strategy": "AUTO", "limitIterationSeconds": x}) for x in (1.0, 1.01))
    assert not due(old, new, 0)


def test_defaults_that_the_server_fills_in_are_no_reason():
    group = {"name": "a", "desired": 2}
    live = {"name": "a", "desired": 2, "ready": 0, "failed": 0}
    assert not due(changed(workerGroups=[live]), changed(workerGroups=[group]), 0)
    assert due(changed(workerGroups=[live | {"ready": 1}]), changed(workerGroups=[group]), 0)


SLOW = {"type": "Straggling", "status": "True", "reason": "RanksAreSlow", "message": "rank 2 is slower"}
ROW = {"rank": 1, "reason": "NotInForce", "message": "not yet in force"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"message": "rank 3 on node 10.0.0.2"}, False),
        ({"message": ""}, True),
        ({"status": "False"}, True),
        ({"reason": "RanksAreEven"}, True),
    ],
    ids=["wording", "no text any more", "status", "reason"],
)
def test_status_and_reason_of_a_condition_are_facts_and_its_message_is_not(change, expected):
    old, new = (changed(conditions=[SLOW | each]) for each in ({}, change))
    assert due(old, new, 0) is expected
    assert due(old, new, 30)


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"message": "4.0x"}, False), ({"reason": "Paused"}, True), ({"message": None}, True)],
    ids=["wording", "reason", "no text any more"],
)
def test_the_reason_of_a_rank_is_a_fact_and_its_message_is_not(change, expected):
    assert due(changed(ranks=[ROW]), changed(ranks=[ROW | change]), 0) is expected


def test_of_a_rank_the_wording_of_an_injection_problem_is_no_fact():
    old, new, none = (changed(ranks=[{"rank": 0, "injectionProblem": words}]) for words in ("slow", "slower", ""))
    assert not due(old, new, 29) and due(old, new, 30)
    assert due(old, none, 0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"reason": "the same decision, now 80 ms"}, False),
        ({"decisionId": 5, "reason": "another decision"}, True),
        ({"problemReason": "ControlRefused", "problem": "no"}, True),
        ({"problem": "another wording"}, False),
        ({"problem": ""}, True),
    ],
    ids=["wording", "decision", "another problem", "wording of a problem", "no problem any more"],
)
def test_the_decision_id_of_balancing_is_a_fact_and_its_reason_is_not(change, expected):
    problem = {"problemReason": "PolicyInvalid", "problem": "invalid"}
    balancing = {"strategy": "AUTO", "decisionId": 4, "reason": "a decision", **problem}
    assert due(changed(balancing=balancing), changed(balancing=balancing | change), 0) is expected


def test_a_change_that_is_not_due_is_due_30_seconds_after_the_last_write():
    new = changed(conditions=[{"type": "Running", "status": "True", "message": "x"}])
    assert due_later(BASE, BASE, 10.0) is None
    assert due_later(BASE, new, 10.0) == 20.0
    assert due_later(BASE, new, float("inf")) == 0.0


def test_among_many_jobs_a_change_that_is_not_due_waits_longer():
    new = changed(savedSeconds=300.0)
    assert due_later(BASE, new, 10.0, 62.5) == 52.5
    assert not due(BASE, new, 62.0, 62.5) and due(BASE, new, 62.5, 62.5)


def test_saved_seconds_are_a_number_that_only_grows():
    old, new = changed(savedSeconds=100.0), changed(savedSeconds=300.0)
    assert not due(old, new, 29) and due(old, new, 30)


@pytest.mark.parametrize(
    ("name", "moved", "expected"),
    [
        ("slowdown", 1.2, False),
        ("slowdown", 4.0, True),
        ("measuredSlowdown", 4.0, True),
        ("share", 0.4, True),
        ("waitSeconds", 40.0, False),
    ],
)
def test_a_jump_of_what_is_measured_is_written_at_once(name, moved, expected):
    old, new = (changed(ranks=[{"rank": 0, name: value}]) for value in (1.0, moved))
    assert due(old, new, 0) is expected


# -- noise ----------------------------------------------------------------------------------------------------

POLL_SECONDS = 5.0


def reported(noise, ranks, poll):
    """Return rank 0's report: each number has normal noise of 5 %; rank 1 is a straggler, and loss falls."""

    def noisy(value):
        return value * max(0.0, noise.gauss(1.0, 0.05))

    rows = tuple(
        TrainerRank(
            rank=rank,
            tp_rank=rank,
            device="cpu",
            compute_seconds=noisy(0.1),
            matmul_seconds=noisy(0.05),
            wait_seconds=noisy(0.001) * noise.choice((0, 1)),
            relative_speed=noisy(0.4 if rank == 1 else 1.0),
            slowdown=noisy(2.0 if rank == 1 else 1.0),
            share=1 / ranks,
            measured_slowdown=noise.choice((None, noisy(1.0))),
            straggler=rank == 1,
        )
        for rank in range(ranks)
    )
    return TrainerStatus(
        job="job",
        attempt=1,
        state="running",
        started_at=EPOCH,
        iteration=50 * poll,
        total_iterations=100_000,
        iteration_seconds=noisy(0.1),
        samples_per_second=noisy(640.0),
        loss=noisy(2.0 * 0.99**poll),
        eta_seconds=noisy(1e4),
        saved_seconds=0.1 * poll,
        limit_iteration_seconds=noisy(0.08),
        untouched_iteration_seconds=noisy(0.2),
        ranks=rows,
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ranks", [4, 80], ids="{} ranks".format)
def test_noise_of_5_percent_costs_two_writes_a_minute(ranks, seed):
    noise, minutes = random.Random(seed), 10
    world = World(manifest(groups=(("a", ranks, 1),))).started()
    writes, written_at = [], -math.inf
    for poll in range(1, int(minutes * 60 / POLL_SECONDS)):
        world.now = EPOCH + poll * POLL_SECONDS
        world.trainer = TrainerReport(reported(noise, ranks, poll), "", EPOCH)
        wanted = world.plan().status
        if due(world.status, wanted, world.now - written_at):
            world.job["status"] |= wanted
            written_at = world.now
            writes.append(world.now - EPOCH)
    assert len(writes) <= 2 * minutes + 1, writes  # and one when the first report comes
    assert writes[0] == POLL_SECONDS


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"generation": 3, "appliedGeneration": 2, "strategy": "ZERO"}, True),
        ({"generation": 3, "appliedGeneration": 3, "strategy": "ZERO"}, False),
        ({"generation": 3, "strategy": "ZERO"}, False),  # no rank has reported yet
    ],
    ids=["behind", "followed", "no report"],
)
def test_a_status_write_waits_for_ranks_that_apply_a_document(wanted, expected):
    old = changed(balancing={"generation": 2, "appliedGeneration": 2, "strategy": "AUTO"})
    assert patience(old, changed(balancing=wanted)) == (ANSWER_SECONDS if expected else 0)
    assert not patience(old, changed(balancing=wanted, waitingFor="Policy"))
    assert not patience(old, changed(balancing=wanted, phase="Restarting"))
    assert not patience(old | {"phase": "Restarting"}, changed(balancing=wanted, phase="Restarting"))


COUNTED = {"name": "a", "desired": 8, "active": 8}


@pytest.mark.parametrize(
    ("change", "others", "expected"),
    [
        ({"ready": 1}, {}, GATHER_SECONDS),
        ({"active": 7, "succeeded": 1}, {}, GATHER_SECONDS),
        ({"active": 7, "failed": 1}, {}, 0),
        ({"desired": 9}, {}, 0),
        ({"ready": 1}, {"waitingFor": "Unschedulable"}, 0),
        ({"ready": 8}, {"conditions": [{"type": "Running", "status": "False"}]}, 0),
        ({"ready": 1}, {"observedGeneration": 2}, 0),
    ],
    ids=["ready", "succeeded", "failed", "desired", "waits", "condition", "generation"],
)
def test_counts_of_pods_wait_for_more_of_them_and_nothing_else_does(change, others, expected):
    old, new = changed(workerGroups=[COUNTED]), changed(workerGroups=[COUNTED | change], **others)
    assert due(old, new, 0) and patience(old, new) == expected


def test_a_number_that_jumps_waits_for_nothing():
    old, new = (changed(training={"iterationSeconds": seconds}) for seconds in (0.1, 0.3))
    assert due(old, new, 0) and not patience(old, new)


def test_a_job_that_is_only_being_made_waits_with_its_first_status():
    first = {"phase": "Pending", "workerGroups": [COUNTED], "observedGeneration": 1}
    assert patience({}, first) == patience({"attempt": 1}, first) == GATHER_SECONDS
    assert not patience({}, first | {"waitingFor": "Quota"})
    assert not patience({}, first | {"conditions": [{"type": "Created", "status": "False", "reason": "NameTaken"}]})
    assert not patience({"phase": "Restarting"}, first)


CREATED = {"type": "Created", "status": "True", "reason": "GangCreated"}


@pytest.mark.parametrize(("jobs", "seconds"), [(1, GATHER_SECONDS), (40, 4.0), (200, 20.0), (5000, 30.0)])
def test_that_all_pods_were_made_waits_until_they_run_the_longer_the_more_jobs_there_are(jobs, seconds):
    made = {"phase": "Starting", "workerGroups": [COUNTED], "conditions": [CREATED], "completedAttempt": 1}
    written = {"attempt": 1, "phase": "Pending"}
    assert due(written, made, 0) and patience(written, made, jobs) == seconds
    runs = made | {"phase": "Running", "conditions": [CREATED, {"type": "Running", "status": "True", "reason": "R"}]}
    assert not patience(written, runs, jobs)
    assert not patience(written, made | {"waitingFor": "Unschedulable"}, jobs)
    assert not patience(written | {"conditions": [CREATED | {"status": "False"}]}, made, jobs)


def test_seconds_of_balancing_are_numbers_like_others():
    old, new = (changed(balancing={"strategy": "AUTO", "limitIterationSeconds": x}) for x in (1.0, 5.0))
    assert due(old, new, 0)
    near = changed(balancing={"strategy": "AUTO", "limitIterationSeconds": 1.01})
    assert not due(old, near, 29)
    assert due(old, near, 30)
