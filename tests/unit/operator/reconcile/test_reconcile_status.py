"""The status: conditions, phase, counts, waitingFor, what the trainer reports."""

import copy
import dataclasses
import json
import math

import pytest
from heterotp_api import names
from heterotp_api.control import ControlDocument
from heterotp_api.job import HeteroTPJob
from heterotp_api.trainer_status import TrainerRank, TrainerStatus
from heterotp_operator.reconcile.observed import TrainerReport, stamp
from heterotp_operator.reconcile.training_status import rounded
from support.reconcile_world import EPOCH, World, manifest


def trainer_report(attempt=1, state="running", ranks=3, **fields):
    """Return a report of rank 0."""
    rows = tuple(
        TrainerRank(rank=rank, tp_rank=rank, device="cpu", compute_seconds=0.1234567, relative_speed=1 / (rank + 1))
        for rank in range(ranks)
    )
    status = TrainerStatus(job="job", attempt=attempt, state=state, started_at=EPOCH, ranks=rows, **fields)
    return TrainerReport(status=status, failure="", since=EPOCH)


def training(world, **fields):
    world.trainer = trainer_report(**fields)
    world.settle()
    return world


# -- conditions and phase -------------------------------------------------------------------------------------


def test_phases_of_a_job_from_start_to_end():
    world = World(manifest())
    phases = []

    def look():
        world.settle()
        phases.append(world.phase)

    look()
    world.run()
    look()
    world.end("job-a-0-1", 1)
    look()
    world.vanish()
    look()
    world.run()
    look()
    for name in world.pods:
        world.end(name, 0)
    look()
    assert phases == ["Starting", "Running", "Restarting", "Restarting", "Running", "Succeeded"]


def test_transition_times_move_only_with_the_status():
    world = World(manifest()).started()
    at = world.condition("Running")["lastTransitionTime"]
    world.now += 100
    training(world)  # another reason, the same status
    assert world.condition("Running")["lastTransitionTime"] == at == stamp(EPOCH)
    world.end("job-a-0-1", 1)
    world.settle()
    assert world.condition("Running")["lastTransitionTime"] == stamp(EPOCH + 100)


def test_every_status_passes_the_schema():
    world = training(World(manifest()).started(), iteration_seconds=0.5, loss=0.7)
    body = copy.deepcopy(world.job)
    assert HeteroTPJob.model_validate(body).status.phase == "Running"


def test_start_and_completion_are_kept():
    world = World(manifest()).started()
    world.now += 60
    for name in world.pods:
        world.end(name, 0)
    world.settle()
    world.now += 60
    world.settle()
    assert (world.status["startTime"], world.status["completionTime"]) == (stamp(EPOCH), stamp(EPOCH + 60))


def test_worker_groups_are_counted():
    world = World(manifest())
    world.settle()
    world.run("job-a-0-1", "job-b-0-1")
    world.play("job-b-1-1", "Running", ready=False)
    world.settle()
    assert world.status["workerGroups"] == [
        {"name": "a", "desired": 1, "ready": 1, "active": 1, "succeeded": 0, "failed": 0},
        {"name": "b", "desired": 2, "ready": 1, "active": 2, "succeeded": 0, "failed": 0},
    ]


# -- what is waited for ---------------------------------------------------------------------------------------


def test_a_job_waits_for_a_pod_that_cannot_be_scheduled():
    world = World(manifest())
    world.settle()
    world.pods["job-b-0-1"]["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    ]
    world.settle()
    assert (world.status["waitingFor"], world.phase) == ("Unschedulable", "Starting")


def test_a_job_waits_for_a_scheduler_that_writes_nothing():
    """Its scheduler is not there, or passes the pods over; the job is looked at again in time to say so."""
    world = World(manifest())
    world.settle()
    assert world.status["waitingFor"] == ""
    assert 14 < world.plan().requeue_after <= 16
    world.now += 16
    world.settle()
    assert world.status["waitingFor"] == "Unschedulable"
    world.run()
    world.settle()
    assert world.status["waitingFor"] != "Unschedulable"


def test_a_gated_pod_waits_for_its_queue():
    world = World(manifest(runPolicy={"gang": {"provider": "kueue", "queue": "q", "admission": "PodGroup"}}))
    world.settle()
    world.pods["job-b-0-1"]["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    ]
    world.settle()
    assert world.status["waitingFor"] == "Quota"


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
def test_a_job_waits_for_an_image_that_cannot_be_pulled(reason):
    world = World(manifest())
    world.settle()
    world.play("job-a-0-1", "Pending", container={"waiting": {"reason": reason}})
    world.settle()
    assert world.status["waitingFor"] == "ImagePull"


def test_a_job_waits_for_a_name_that_does_not_resolve():
    world = World(manifest()).started()
    world.end("job-b-1-1", names.EXIT_NAME_UNRESOLVED, message="any words")
    world.settle()
    assert world.status["attempt"] == 1, "a victim: the cause may still show up"
    assert world.status["waitingFor"] == "DNS"


def test_a_job_waits_until_its_ranks_have_met():
    world = World(manifest()).started()
    assert world.status["waitingFor"] == "Rendezvous"
    assert training(world, state="starting").status["waitingFor"] == "Rendezvous"
    assert training(world).status["waitingFor"] == ""


def test_a_new_attempt_waits_for_its_own_rendezvous():
    world = training(World(manifest()).started())
    world.end("job-b-1-1", 1)
    world.settle()
    world.vanish()
    world.started()  # the last report is still that of attempt 1
    assert (world.phase, world.status["waitingFor"]) == ("Running", "Rendezvous")
    assert training(world, attempt=2).status["waitingFor"] == ""


def test_silence_is_shown_after_a_while_and_the_last_values_stay():
    world = training(World(manifest()).started(), iteration=70, applied_generation=1)
    world.trainer = TrainerReport(None, "NoAnswer", EPOCH)
    decision = world.settle()
    assert (world.status["waitingFor"], decision.requeue_after) == ("", pytest.approx(15.1))
    world.now += decision.requeue_after
    decision = world.settle()
    assert (world.status["waitingFor"], decision.requeue_after) == ("Unreachable", None)
    assert world.status["training"]["iteration"] == 70
    assert world.status["balancing"]["appliedGeneration"] == 1
    assert (world.phase, world.status["attempt"]) == ("Running", 1)


def test_the_message_of_the_trainer_is_shown_and_survives_a_restart_of_the_operator():
    full = "checkpoint of iteration 70 in /checkpoints cannot be written: No space left on device"
    world = training(World(manifest()).started(), iteration=71, message=full)
    world.trainer = None
    world.settle()
    assert (world.condition("Running")["status"], world.condition("Running")["message"]) == ("True", full)
    assert training(world, iteration=81).condition("Running")["message"] == ""


def test_a_stopping_trainer_writes_its_checkpoint():
    assert training(training(World(manifest()).started()), state="stopping").status["waitingFor"] == "Checkpoint"


def test_a_job_that_ended_waits_for_nothing():
    world = World(manifest(runPolicy={"preRunningDeadlineSeconds": 10})).started()
    world.now += 20
    world.settle()
    assert (world.phase, world.status["waitingFor"]) == ("Failed", "")


# -- policy and control document ------------------------------------------------------------------------------


def document(world):
    return ControlDocument.model_validate_json(world.objects["ConfigMap"]["data"][names.CONTROL_FILE])


def test_without_a_policy_the_strategy_is_auto_without_loss():
    world = World(manifest())
    world.settle()
    found = document(world)
    assert (found.generation, found.balancing.strategy, found.balancing.max_pruned_share) == (1, "AUTO", 0)
    assert {k: world.status["balancing"][k] for k in ("policy", "generation", "strategy")} == {
        "policy": "default",
        "generation": 1,
        "strategy": "AUTO",
    }


def test_a_missing_policy_leaves_the_job_running():
    world = training(World(manifest(balancing={"policyRef": {"name": "absent"}})).started())
    assert (world.phase, world.status["waitingFor"]) == ("Running", "Policy")
    assert document(world).balancing.max_pruned_share == 0


def test_an_inline_policy_is_published_and_its_edit_raises_the_generation():
    world = World(manifest(balancing={"policy": {"strategy": "None"}})).started()
    assert (document(world).generation, document(world).balancing.strategy) == (1, "None")
    world.edit(balancing={"policy": {"strategy": "ZERO"}})
    world.settle()
    assert (document(world).generation, document(world).balancing.strategy) == (2, "ZERO")
    assert (world.status["balancing"]["generation"], world.status["balancing"]["policy"]) == (2, "inline")
    assert (world.status["attempt"], "SpecChangePending" in world.true) == (1, False)


@pytest.mark.parametrize("text", ["", "{", json.dumps({"generation": 7, "schemaVersion": 9})])
def test_a_damaged_document_is_written_again(text):
    world = World(manifest()).started()
    world.objects["ConfigMap"]["data"][names.CONTROL_FILE] = text
    world.settle()
    assert document(world).generation == 1


def test_a_document_edited_by_hand_is_overruled_with_a_higher_generation():
    world = World(manifest()).started()
    edited = document(world).dump() | {"generation": 5, "balancing": {"strategy": "None"}}
    world.objects["ConfigMap"]["data"][names.CONTROL_FILE] = json.dumps(edited)
    world.settle()
    assert (document(world).generation, document(world).balancing.strategy) == (6, "AUTO")


# -- what the trainer reports ------------------------------------------------------------------------------------


def test_training_and_ranks_are_rounded_and_ranks_have_pod_and_node():
    world = training(World(manifest()).started(), iteration=12, iteration_seconds=0.123456, loss=1.23456, accuracy=0.5)
    progress = world.status["training"]
    assert (progress["iteration"], progress["iterationSeconds"], progress["loss"]) == (12, 0.123, 1.23)
    assert progress["iterationsPerSecond"] == 8.1
    assert "etaSeconds" not in progress
    last = world.status["ranks"][2]
    assert (last["pod"], last["node"], last["computeSeconds"]) == ("job-b-1-1", "node-1", 0.123)


def slowed(*chis):
    """Return a job that trains, whose ranks have these chi; the speeds beside them do not decide."""
    world = World(manifest()).started()
    rows = tuple(
        TrainerRank(rank=rank, tp_rank=rank, device="cpu", slowdown=chi, relative_speed=1 / (rank + 1))
        for rank, chi in enumerate(chis)
    )
    report = trainer_report(iteration=12, iteration_seconds=0.1, samples_per_second=10.0, eta_seconds=5.0)
    world.trainer = dataclasses.replace(report, status=report.status.model_copy(update={"ranks": rows}))
    world.settle()
    return world


@pytest.mark.parametrize(
    ("chis", "shown"),
    [
        ((1.0, 3.94, 1.0), "rank 1 (3.9x)"),
        ((2.04, 2.01, 1.0), "rank 0 (2.0x)"),
        ((1.0, 999.6, 250.0), "rank 1 (1000x)"),
        ((1.04, 1.0, 1.0), None),
        ((None, None, None), None),
        ((1.0, float("nan"), float("inf")), None),
    ],
)
def test_the_slowest_rank_is_the_one_of_the_largest_chi(chis, shown):
    assert slowed(*chis).status.get("slowest") == shown


RATES = ("iterationsPerSecond", "samplesPerSecond", "etaSeconds")


def test_a_job_that_does_not_run_has_no_speed():
    world = slowed(1.0, 4.0, 1.0)
    assert all(name in world.status["training"] for name in RATES)
    world.edit(runPolicy={"suspend": True})
    world.settle()
    world.vanish()
    world.settle()
    assert world.phase == "Suspended"
    assert "slowest" not in world.status
    assert not set(RATES) & set(world.status["training"])
    assert (world.status["training"]["iteration"], world.status["training"]["iterationSeconds"]) == (12, 0.1)


def test_the_perplexity_of_a_language_model_is_shown():
    world = training(World(manifest()).started(), iteration=12, perplexity=9.48774)
    assert world.status["training"]["perplexity"] == 9.49
    assert "perplexity" not in training(World(manifest()).started(), iteration=12).status["training"]


def test_two_ranks_of_one_pod_share_its_name():
    world = training(World(manifest(groups=(("a", 1, 2), ("b", 1, 1)))).started())
    assert [rank["pod"] for rank in world.status["ranks"]] == ["job-a-0-1", "job-a-0-1", "job-b-0-1"]


def test_a_rank_is_shown_with_the_units_that_it_owns():
    world = World(manifest()).started()
    owned = [{"heads": 2, "hidden_units": 24, "vocabulary_rows": 64}, {"heads": 2, "hidden_units": 24}]
    rows = tuple(TrainerRank(rank=rank, tp_rank=rank, device="cpu", **each) for rank, each in enumerate(owned))
    report = trainer_report()
    world.trainer = dataclasses.replace(report, status=report.status.model_copy(update={"ranks": rows}))
    world.settle()
    first, second = world.status["ranks"][:2]
    assert (first["heads"], first["hiddenUnits"], first["vocabularyRows"]) == (2, 24, 64)
    assert "vocabularyRows" not in second


def test_of_many_ranks_the_slowest_64_are_shown():
    world = training(World(manifest(groups=(("a", 5, 16),))).started(), ranks=80)
    assert [rank["rank"] for rank in world.status["ranks"]] == list(range(16, 80))


def test_a_report_of_another_attempt_is_ignored():
    world = training(World(manifest()).started(), attempt=7, iteration=99)
    assert "training" not in world.status
    assert world.status["waitingFor"] == "Rendezvous"


def test_the_termination_message_of_rank_0_replaces_its_last_answer():
    world = training(World(manifest()).started(), iteration=8, ranks=3)
    last = trainer_report(iteration=10, state="succeeded", ranks=0).status.model_dump_json(by_alias=True)
    world.end("job-a-0-1", 0, message=last)
    for name in ("job-b-0-1", "job-b-1-1"):
        world.end(name, 0, message=trainer_report(iteration=99).status.model_dump_json(by_alias=True))
    world.settle()
    assert (world.phase, world.status["training"]["iteration"]) == ("Succeeded", 10)


@pytest.mark.parametrize("words", ["", "bye", "{", '{"job": 7}'])
def test_a_termination_message_that_is_no_status_is_ignored(words):
    world = training(World(manifest()).started(), iteration=8)
    world.end("job-a-0-1", 1, message=words)
    world.settle()
    assert world.status["training"]["iteration"] == 8
    expected = f"Error, exit code 1: {words}" if words else "Error, exit code 1"
    assert world.condition("Restarting")["message"].endswith(expected)


def test_while_rank_0_starts_the_training_of_the_attempt_before_stays():
    world = training(World(manifest()).started(), iteration=8)
    world.end("job-b-0-1", 1)
    world.settle()
    world.vanish()
    world.settle()
    world.run()
    training(world, attempt=2, state="starting", iteration=0)
    assert world.status["training"]["iteration"] == 8
    assert world.status["waitingFor"] == "Rendezvous"
    training(world, attempt=2, iteration=6)
    assert world.status["training"]["iteration"] == 6


def test_a_loss_that_is_no_number_is_left_out():
    world = training(World(manifest()).started(), loss=math.nan, eta_seconds=math.inf)
    assert not {"loss", "etaSeconds"} & set(world.status["training"])


@pytest.mark.parametrize(("value", "shown"), [(None, None), (0.0, 0.0), (123456.0, 123000.0), (1.2345e-5, 1.23e-5)])
def test_three_significant_digits(value, shown):
    assert rounded(value) == (shown if shown is None else pytest.approx(shown, rel=1e-9))


def test_a_refused_control_document_is_shown_with_its_generation():
    world = training(World(manifest()).started(), control_error="x" * 5000, control_error_generation=3)
    assert world.status["balancing"]["problem"] == "x" * 1024
    assert world.status["balancing"]["problemReason"] == "ControlRefused"
    assert world.status["balancing"]["problemGeneration"] == 3
