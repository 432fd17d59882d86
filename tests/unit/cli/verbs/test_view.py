"""One view of a job, from the API server's object and from a run's status."""

import json

from heterotp_api.trainer_status import TrainerRank
from heterotp_cli.verbs.describe import as_json
from heterotp_cli.verbs.table import lines
from heterotp_cli.verbs.view import Advice, JobView, RankView, of_job, of_run, places_of
from support.cli_views import EMULATED, REASON, SINCE, balanced_job, balancing, job_body, job_status, rank, run_status


def test_a_job_is_seen_with_its_ranks():
    view = of_job(balanced_job())
    assert (view.name, view.namespace, view.state, view.attempt, view.rank_count) == (
        "demo",
        "default",
        "Running",
        1,
        4,
    )
    assert (view.iteration, view.total_iterations, view.epoch, view.eta_seconds) == (70, 200, 1, 45.4)
    assert (view.iteration_seconds, view.predicted_iteration_seconds, view.limit_iteration_seconds) == (
        0.349,
        0.351,
        0.371,
    )
    assert (view.untouched_iteration_seconds, view.saved_seconds, view.loss, view.accuracy) == (
        0.871,
        731,
        1.168,
        0.426,
    )
    assert (view.policy, view.strategy, view.generation, view.applied_generation) == ("inline", "SEMI", 3, 3)
    assert (view.reason, view.problem) == (REASON, "")
    assert view.ranks[2] == RankView(
        rank=2,
        group="fast",
        pod="demo-2",
        node="node-2",
        device="cpu",
        share=0.25,
        compute_seconds=0.241,
        matmul_seconds=0.223,
        wait_seconds=0.0524,
        relative_speed=1.0,
        slowdown=4.01,
        straggler=True,
        straggling_since=SINCE,
        pruned_ratio=0.401,
        migrated_ratio=0.336,
        injected_slowdown=4.0,
        measured_slowdown=3.9,
    )
    assert [each.group for each in view.ranks] == ["fast", "fast", "fast", "slow"]


def test_a_job_without_a_status_has_a_view():
    assert of_job(job_body()) == JobView("demo", "default", rank_count=4)
    assert of_job({"metadata": {"name": "demo"}}) == JobView("demo")


def test_fields_of_a_newer_operator_are_left_out():
    view = of_job(job_body({"phase": "Running", "news": 1, "ranks": [{"rank": 9, "tpRank": 9, "colour": "red"}]}))
    assert view.ranks == (RankView(9),)


def test_a_problem_is_shown_beside_the_decision():
    refusal = "spec.balancing.policyRef.name: 'gone': there is no such BalancingPolicy: AUTO without loss"
    view = of_job(job_body(job_status(balancing=balancing(problem=refusal, reason="AUTO: no rank is slower"))))
    assert (view.reason, view.problem) == ("AUTO: no rank is slower", refusal)


def test_conditions_that_are_true_are_shown():
    def condition(kind, status, message):
        return {"type": kind, "status": status, "reason": "R", "message": message}

    reported = [
        condition("Straggling", "True", "rank 2 is slow"),
        condition("ReplacementAdvised", "False", "drain it"),
        condition("Running", "True", "all ranks train"),
    ]
    view = of_job(job_body(job_status(conditions=reported)))
    assert view.advice == (Advice("Straggling", "rank 2 is slow"),)
    assert view.message == ""
    ended = of_job(job_body(job_status(phase="Failed", conditions=[condition("Failed", "True", "it broke")])))
    assert (ended.message, ended.ended, ended.running) == ("it broke", True, False)


def test_the_slowest_ranks_come_first_and_unknown_ones_last():
    reported = job_status(rank(1, slowdown=None), rank(3, slowdown=1.51), rank(2, slowdown=1.5))
    assert [each.rank for each in of_job(job_body(reported)).by_slowdown] == [2, 3, 0, 1]


def test_a_run_is_seen_like_a_job():
    reported = TrainerRank(
        rank=3,
        tp_rank=3,
        device="cuda:NVIDIA H100",
        slowdown=4.0,
        columns_in=7,
        vocabulary_rows=64,
        injected_slowdown=4.0,
        injection_problem="no clock",
    )
    status = run_status(reported, reason="why", control_error="control.json: is not JSON", saved_seconds=2.5)
    groups = [{"name": "fast", "processesPerPod": 3, "device": EMULATED}, {"name": "slow"}]
    view = of_run(status, groups, "running")
    assert (view.name, view.state, view.rank_count, view.reason) == ("demo", "running", 4, "why")
    assert (view.problem, view.saved_seconds, view.generation, view.policy) == (
        "control.json: is not JSON",
        2.5,
        1,
        None,
    )
    seen = view.ranks[3]
    assert (seen.group, seen.device, seen.slowdown, seen.columns_in) == ("slow", "NVIDIA H100", 4.0, 7)
    assert seen.vocabulary_rows == 64
    assert (seen.injected, seen.has_reduced_work, seen.injection_problem) == (True, False, "no clock")
    assert view.ranks[0].device == "emulated 0.02 TFLOPS"


def test_a_run_of_an_older_version_has_no_groups():
    view = of_run(run_status(), [], "running")
    assert (view.rank_count, view.ranks[0].group) == (4, None)


def test_places_are_numbered_group_by_group():
    places = places_of([{"name": "a", "pods": 2, "processesPerPod": 2}, {"name": "b"}])
    assert [(p.rank, p.group, p.pod_index, p.local_rank) for p in places] == [
        (0, "a", 0, 0),
        (1, "a", 0, 1),
        (2, "a", 1, 0),
        (3, "a", 1, 1),
        (4, "b", 0, 0),
    ]


def test_json_has_the_names_of_the_api_and_null_for_unknown_values():
    reported = json.loads(json.dumps(as_json(of_job(balanced_job()))))
    assert (reported["name"], reported["appliedGeneration"], reported["message"]) == ("demo", 3, "")
    assert (reported["ranks"][2]["injectedSlowdown"], reported["ranks"][2]["columnsIn"]) == (4.0, None)
    assert [each["name"] for each in as_json([JobView("a"), JobView("b")])] == ["a", "b"]


STALLED = "no iteration since 2026-01-01T00:12:08Z; rank 1 is still computing (data, since 00:12:09 UTC)"


def test_a_stall_is_seen_while_its_condition_holds():
    def seen(status):
        found = [{"type": "Stalled", "status": status, "reason": "NoIteration", "message": STALLED}]
        return of_job(job_body(job_status(conditions=found, stall={"ranks": [1]}))).stall

    assert (seen("True"), seen("False")) == (STALLED, "")


def test_a_stall_of_a_run_is_seen_until_it_has_ended():
    status = run_status(stalled_seconds=12.4, stalled_by=(1,), stall="rank 1 is still computing")
    assert of_run(status, (), "running").stall == "no iteration for 12 s; rank 1 is still computing"
    assert of_run(status, (), "unfinished").stall == ""
    assert of_run(run_status(), (), "running").stall == ""


def test_a_language_model_is_seen_with_its_perplexity():
    body = balanced_job()
    body["status"]["training"] |= {"perplexity": 9.49}
    del body["status"]["training"]["accuracy"]
    view = of_job(body)
    assert (view.perplexity, view.accuracy) == (9.49, None)
    shown = " · ".join(str(line) for line in lines(view, 200))
    assert "loss 1.168" in shown and "perplexity 9.49" in shown and "accuracy" not in shown
