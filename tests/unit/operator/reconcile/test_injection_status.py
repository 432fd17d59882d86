"""The status of a StragglerInjection: its ranks, requested and measured slow-down, since when, and why not."""

import pytest
from heterotp_api.injection import InjectionStatus
from heterotp_api.trainer_status import TrainerInjection, TrainerRank, TrainerStatus
from heterotp_operator.reconcile.injection_status import ObservedInjection, injection_status
from heterotp_operator.reconcile.observed import TrainerReport, stamp
from support.reconcile_world import EPOCH, World, injection, labelled, manifest


def report_of(*injections, attempt=1, state="running", ranks=3, **of_rank):
    """Return a report of rank 0; of_rank: rank number (as r1) -> fields of its line."""
    rows = tuple(
        TrainerRank(rank=rank, tp_rank=rank, device="cpu", share=1 / 3, **of_rank.get(f"r{rank}", {}))
        for rank in range(ranks)
    )
    status = TrainerStatus(
        job="job", attempt=attempt, state=state, started_at=EPOCH - 3600, ranks=rows, injections=injections
    )
    return TrainerReport(status, "", EPOCH)


def active(*ranks, uid="uid-i", state="active"):
    return TrainerInjection(uid=uid, state=state, ranks=ranks)


SLOWED = {"injected_slowdown": 4.0, "measured_slowdown": 3.876}


def running(*injections, **of_rank):
    """Return a world of a job whose ranks train and say this of injections."""
    world = World(labelled(manifest())).started()
    world.put(injection())
    world.trainer = report_of(*injections, **of_rank)
    world.settle()
    return world


def status(*worlds, body=None, live=None, now=None):
    body = body or injection()
    body["status"] = live or {}
    for world in worlds:
        world.put(body)
    shown, events = injection_status(ObservedInjection(body, tuple(w.observe() for w in worlds), now or EPOCH))
    InjectionStatus.model_validate(shown)  # the API server would take it
    return shown, [(event.type, event.reason, event.message) for event in events]


def test_a_slowed_rank_shows_requested_and_measured_slowdown_and_since():
    shown, events = status(running(active(1), r1=SLOWED))
    assert shown["phase"] == "Injecting"
    assert shown["ranks"] == [{"job": "job", "rank": 1, "asked": 4.0, "since": stamp(EPOCH), "measured": 3.88}]
    assert (shown["measured"], shown.get("message"), shown["observedGeneration"]) == (3.88, None, 1)
    assert shown["conditions"][0]["type"] == "Accepted" and shown["conditions"][0]["status"] == "True"
    assert events == [("Normal", "Injecting", "rank 1 of job job")]


def test_since_is_the_operators_time_and_does_not_change():
    world = running(active(1), r1=SLOWED)
    first, _ = status(world)
    later, events = status(world, live=first, now=EPOCH + 500)
    assert later["ranks"][0]["since"] == stamp(EPOCH)  # the trainer's clock is an hour behind: it does not matter
    assert events == []
    world.trainer = report_of(active(state="paused"))
    paused, _ = status(world, live=later, now=EPOCH + 600)
    assert "since" not in paused["ranks"][0]
    world.trainer = report_of(active(1))
    again, _ = status(world, live=paused, now=EPOCH + 700)
    assert again["ranks"][0]["since"] == stamp(EPOCH + 700)


@pytest.mark.parametrize(
    ("state", "phase", "reason", "words"),
    [
        ("waiting", "Pending", "NotStarted", "its start has not come yet"),
        ("paused", "Paused", "Paused", "spec.paused is true"),
        ("finished", "Finished", "Finished", "its stop has come"),
        ("lapsed", "Pending", "LeaseExpired", "the lease ran out: the operator did not reach rank 0"),
    ],
)
def test_the_phase_is_the_state_that_rank_0_reports(state, phase, reason, words):
    shown, _ = status(running(active(state=state)))
    assert shown["phase"] == phase
    assert shown["ranks"] == [{"job": "job", "rank": 1, "asked": 4.0, "reason": reason, "message": words}]
    assert "measured" not in shown


def test_of_a_pattern_only_the_rank_in_turn_is_slowed():
    body = injection(targets={"ranks": [0, 1]}, pattern={"roundRobin": {"every": {"iterations": 9}}})
    shown, _ = status(running(active(1), r1=SLOWED), body=body)
    assert [(row["rank"], row.get("message")) for row in shown["ranks"]] == [
        (1, None),
        (0, "it is another rank's turn"),
    ]
    assert shown["measured"] == 3.88


@pytest.mark.parametrize(
    ("rank", "words"),
    [
        (
            {"injected_slowdown": 4.0, "injection_problem": "mode spin: needs cuda, this rank computes on cpu"},
            "mode spin: needs cuda, this rank computes on cpu",
        ),
        (
            {"injected_slowdown": 4.0, "migrated_ratio": 1.0, "measured_slowdown": 1.0},
            "it has nothing to compute: 100% migrated away, 0% pruned",
        ),
        ({"injected_slowdown": 8.0, "measured_slowdown": 7.9}, "with other injections 8x is asked of it"),
        (
            {"injected_slowdown": 1000.0, "measured_slowdown": 990.0},
            "with other injections 1000x is asked of it, the most there is",
        ),
        ({"injected_slowdown": 4.0, "measured_slowdown": 1.02}, "1.02x is measured where 4.00x is asked"),
        ({"injected_slowdown": 4.0, "measured_slowdown": 3.5}, None),
        ({"injected_slowdown": 4.0}, None),
    ],
    ids=["refused", "migrated away", "overlapping", "bounded", "no effect", "close enough", "not measured yet"],
)
def test_reasons_of_a_rank_with_another_effect(rank, words):
    shown, _ = status(running(active(1), r1=rank))
    assert shown["ranks"][0].get("message") == words
    assert shown["phase"] == "Injecting"


def test_without_its_pod_a_rank_has_no_effect_and_a_reason():
    world = running(active(1), r1=SLOWED)
    world.play("job-b-0-1", "Pending")
    shown, _ = status(world)
    assert shown["ranks"][0]["message"] == "its pod job-b-0-1 is Pending"
    del world.pods["job-b-0-1"]
    shown, _ = status(world)
    assert shown["ranks"][0]["message"].startswith("its pod is not there: ")


def test_an_injection_that_rank_0_has_not_applied_is_pending():
    shown, _ = status(running())
    assert (shown["phase"], shown["ranks"][0]["message"]) == ("Pending", "not yet in force")


@pytest.mark.parametrize(
    "silence", [None, TrainerReport(None, "NoAnswer", EPOCH)], ids=["not asked yet", "one lost poll"]
)
def test_a_short_silence_of_rank_0_changes_nothing(silence):
    world = running(active(1), r1=SLOWED)
    first, _ = status(world)
    world.trainer = silence
    shown, events = status(world, live=first, now=EPOCH + 5)
    assert (shown, events) == (first, [])
    for phase in ("Paused", "Finished"):
        over = {"phase": phase, "ranks": [{"job": "job", "rank": 1, "asked": 4.0, "message": "x"}]}
        assert status(world, live=over)[0]["phase"] == phase


def test_a_long_silence_is_a_reason_and_the_last_values_stay():
    world = running(active(1), r1=SLOWED)
    first, _ = status(world)
    world.trainer = TrainerReport(None, "NoAnswer", EPOCH)
    shown, events = status(world, live=first, now=EPOCH + 16)
    assert (shown["phase"], events) == ("Injecting", [])
    (row,) = shown["ranks"]
    assert row["message"] == "rank 0 gives no answer that can be used"
    assert row["since"] == stamp(EPOCH)


def test_a_paused_injection_of_a_job_that_does_not_run_is_paused():
    world = World(labelled(manifest()))
    shown, _ = status(world, body=injection(paused=True))
    assert shown["phase"] == "Paused"


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ({"ranks": [1, 7]}, "job job: spec.targets.ranks: 7: the job has ranks 0 .. 2"),
        ({"workerGroups": ["c"]}, "job job: spec.targets.workerGroups: 'c': the job has the groups a, b"),
        ({"count": 9}, "job job: spec.targets.count: 9: the job has 3 ranks"),
        ({"nodes": ["n9"]}, "job job: spec.targets.nodes: n9: no rank of the job runs there"),
    ],
    ids=["rank", "group", "count", "node"],
)
def test_targets_that_the_job_does_not_have_are_a_failure(targets, words):
    shown, events = status(running(), body=injection(targets=targets))
    assert (shown["phase"], shown["message"], shown["ranks"]) == ("Failed", words, [])
    accepted = shown["conditions"][0]
    assert (accepted["status"], accepted["reason"], accepted["message"]) == ("False", "TargetsUnknown", words)
    assert events == [("Warning", "Failed", words)]


def test_nodes_are_waited_for_while_pods_are_not_bound():
    world = World(labelled(manifest()))
    shown, _ = status(world, body=injection(targets={"nodes": ["n9"]}))
    assert shown["phase"] == "Pending"
    world.settle()
    shown, _ = status(world, body=injection(targets={"nodes": ["n9"]}))
    assert (shown["phase"], shown["conditions"][0]["status"]) == ("Pending", "True")


def test_a_missing_job_is_named():
    shown, _ = status(body=injection(jobRef={"name": "absent"}))
    assert shown["phase"] == "Pending"
    assert shown["message"] == "spec.jobRef.name: 'absent': there is no such HeteroTPJob in this namespace"
    shown, _ = status(body=injection(selector={"matchLabels": {"x": "y"}}))
    assert shown["message"] == "spec.selector: selects no HeteroTPJob of this namespace"


def test_a_spec_that_the_models_refuse_fails_with_field_and_value():
    shown, _ = status(body=injection(slowdown=0.5))
    assert shown["phase"] == "Failed"
    assert shown["message"].startswith("spec.slowdown: 0.5 ")


def test_an_injection_of_a_job_that_ended_is_finished():
    world = running(active(1))
    for name in world.pods:
        world.end(name, 0)
    world.settle()
    assert status(world)[0]["phase"] == "Finished"


def other_job(name, *injections, **of_rank):
    world = World(labelled(manifest(name))).started()
    body = injection(selector={"matchLabels": {"a": "b"}}, targets={"ranks": [2]})
    world.put(body)
    report = report_of(*injections, **of_rank)
    world.trainer = TrainerReport(report.status.model_copy(update={"job": name}), "", EPOCH)
    world.settle()
    return world


def test_of_several_jobs_the_most_active_phase_is_shown():
    body = injection(selector={"matchLabels": {"a": "b"}}, targets={"ranks": [2]})
    slow = other_job("slow", active(2), r2={"injected_slowdown": 4.0, "measured_slowdown": 4.2})
    over = other_job("over", active(state="finished"))
    small = World(labelled(manifest("small", groups=(("a", 2, 1),)))).started()
    shown, _ = status(slow, over, small, body=body)
    assert shown["phase"] == "Injecting"
    assert shown["message"] == "job small: spec.targets.ranks: 2: the job has ranks 0 .. 1"
    assert shown["conditions"][0]["status"] == "True"
    assert [row["job"] for row in shown["ranks"]] == ["slow", "over"]
    assert shown["measured"] == 4.2
    assert status(over, small, body=body)[0]["phase"] == "Finished"
    assert status(small, body=body)[0]["phase"] == "Failed"


def test_a_status_holds_64_ranks_those_that_are_slowed_first():
    world = World(labelled(manifest(groups=(("a", 100, 1),)))).started()
    body = injection(targets={"workerGroups": ["a"]})
    world.put(body)
    world.trainer = report_of(active(98, 99), ranks=100)
    world.settle()
    rows = status(world, body=body)[0]["ranks"]
    assert len(rows) == 64
    assert [row["rank"] for row in rows[:3]] == [98, 99, 0]


def test_an_injection_without_room_in_the_control_document_has_failed(monkeypatch):
    monkeypatch.setattr("heterotp_operator.reconcile.injections.MOST_INJECTIONS", 1)
    world = running()
    world.put(injection("older", -5))
    shown, _ = status(world)
    assert shown["phase"] == "Failed"
    assert shown["message"] == "job job: the job's control document is full: 1 older injections fill it"
