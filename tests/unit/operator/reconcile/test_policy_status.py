"""The status of a BalancingPolicy: its jobs, the jobs that do not follow yet, saved seconds, conflicts."""

import pytest
from heterotp_api.policy import PolicyStatus
from heterotp_operator.reconcile.policy_status import MAX_LAGGARDS, ObservedPolicy, policy_status
from support.reconcile_world import EPOCH, labelled, manifest, policy


def job(name, follows="p", generation=3, applied=3, phase="Running", version=1, saved=0.0, labels=None, **spec):
    """Return a job with the policy of its control document in its status."""
    body = labelled(manifest(name, **spec), **(labels or {"a": "b"}))
    balancing = {"policy": follows, "policyGeneration": version, "generation": generation}
    body["status"] = {"phase": phase, "balancing": balancing | {"appliedGeneration": applied, "savedSeconds": saved}}
    return body


def status(*jobs, spec=None, rivals=(), live=None):
    mine = policy("p", 5, **(spec or {"strategy": "ZERO"}))
    mine["status"] = live or {}
    shown, events = policy_status(ObservedPolicy(mine, (mine, *rivals), jobs, EPOCH))
    PolicyStatus.model_validate(shown)  # the API server would take it
    return shown, events


def condition(shown, kind):
    return next((c for c in shown["conditions"] if c["type"] == kind), {})


def outcome(shown, kind):
    found = condition(shown, kind)
    return found.get("status"), found.get("reason"), found.get("message")


def test_jobs_that_follow_the_policy_are_counted():
    shown, events = status(job("one", saved=20.04), job("two", saved=3.0), job("else", labels={"a": "c"}))
    assert (shown["selectedJobs"], shown["appliedJobs"], shown["laggards"]) == (2, 2, [])
    assert shown["savedSeconds"] == 23.0
    assert shown["observedGeneration"] == 1
    assert outcome(shown, "Applied") == ("True", "InForce", "")
    assert outcome(shown, "Accepted") == ("True", "Accepted", "")
    assert condition(shown, "Conflict") == {} and events == ()


@pytest.mark.parametrize(
    ("late", "published"),
    [
        ({"applied": 2}, 3),
        ({"version": 0}, 0),  # an earlier version of this policy
        ({"follows": "default"}, 0),
    ],
    ids=["not yet applied", "not yet published", "another policy"],
)
def test_running_jobs_that_do_not_follow_yet_are_laggards(late, published):
    shown, _ = status(job("one"), job("slow", **late))
    applied = late.get("applied", 3)
    assert shown["laggards"] == [{"job": "slow", "published": published, "applied": applied}]
    assert (shown["selectedJobs"], shown["appliedJobs"]) == (2, 1)
    assert outcome(shown, "Applied") == ("False", "Publishing", "not yet in force in: slow")


def test_laggards_are_bounded():
    shown, _ = status(*(job(f"j{n:03}", applied=0) for n in range(100)))
    assert len(shown["laggards"]) == MAX_LAGGARDS == 64
    assert shown["selectedJobs"] == 100
    assert condition(shown, "Applied")["message"].endswith("j004 and 95 more")


def test_jobs_that_do_not_run_are_no_laggards_and_jobs_that_ended_do_not_count():
    shown, _ = status(
        job("runs"), job("waits", phase="Suspended", applied=0), job("over", phase="Succeeded", applied=0, saved=5.0)
    )
    assert (shown["selectedJobs"], shown["appliedJobs"], shown["laggards"]) == (2, 1, [])
    words = "in force in all running jobs; 1 that do not run take it when they start"
    assert outcome(shown, "Applied") == ("True", "InForce", words)
    assert shown["savedSeconds"] == 5.0


def test_a_policy_without_jobs_is_not_applied():
    shown, _ = status(job("else", labels={"a": "c"}))
    assert (shown["selectedJobs"], outcome(shown, "Applied")) == (0, ("False", "NoJobs", "it governs no job"))


def test_the_younger_of_two_policies_has_a_conflict():
    older = policy("older", 1, strategy="MIG")
    shown, (event,) = status(job("one", follows="older"), job("two", follows="older"), rivals=(older,))
    words = (
        "job one follows BalancingPolicy older; job two follows BalancingPolicy older: "
        "a job's own choice comes first, then the oldest policy"
    )
    assert outcome(shown, "Conflict") == ("True", "GovernedByAnother", words)
    assert (shown["selectedJobs"], shown["savedSeconds"]) == (0, 0)
    assert (event.type, event.reason, event.message) == ("Warning", "GovernedByAnother", words)
    again, events = status(
        job("one", follows="older"),
        job("two", follows="older"),
        rivals=(older,),
        live={"conditions": shown["conditions"]},
    )
    assert events == () and again["conditions"] == shown["conditions"]
    free, _ = status(job("one"), live={"conditions": shown["conditions"]})
    assert outcome(free, "Conflict")[:2] == ("False", "NoConflict")


@pytest.mark.parametrize(
    ("balancing", "words"),
    [
        ({"policy": {"strategy": "MIG"}}, "job one follows its own inline policy"),
        ({"policyRef": {"name": "other"}}, "job one follows BalancingPolicy other"),
    ],
    ids=["inline", "policyRef"],
)
def test_a_conflict_with_a_jobs_own_policy_is_named(balancing, words):
    other = policy("other", 9)
    other["spec"].pop("selector")
    shown, _ = status(job("one", balancing=balancing), rivals=(other,))
    assert condition(shown, "Conflict")["message"].startswith(words)


def test_the_older_policy_has_no_conflict():
    shown, _ = status(job("one"), rivals=(policy("younger", 9, strategy="MIG"),))
    assert condition(shown, "Conflict") == {}
    assert shown["appliedJobs"] == 1


def test_a_job_that_the_policy_does_not_fit_is_named_with_field_and_value():
    spec = {"strategy": "ZERO", "zero": {"fixedRatio": 0.5, "ranks": [2]}}
    shown, (event,) = status(job("small", groups=(("a", 2, 1),), follows="default"), job("big"), spec=spec)
    words = "job small: spec.zero.ranks: 2: the job has ranks 0 .. 1: AUTO without loss balances it instead"
    assert outcome(shown, "Applied") == ("False", "DoesNotFit", words)
    assert event.message == words
    assert [lag["job"] for lag in shown["laggards"]] == ["small"]
    assert (shown["selectedJobs"], shown["appliedJobs"]) == (2, 1)


def test_a_spec_that_the_models_refuse_is_not_accepted():
    shown, (event,) = status(job("one"), spec={"strategy": "SEMMI"})
    accepted = outcome(shown, "Accepted")
    assert accepted[:2] == ("False", "InvalidSpec")
    assert accepted[2].startswith("spec.strategy: 'SEMMI' ")
    assert (shown["selectedJobs"], outcome(shown, "Applied")[1]) == (0, "NoJobs")
    assert event.reason == "InvalidSpec"


def test_transition_times_move_only_with_the_status():
    first, _ = status(job("one"))
    mine = policy("p", 5, strategy="ZERO")
    mine["status"] = first
    later, _ = policy_status(ObservedPolicy(mine, (mine,), (job("one"),), EPOCH + 50))
    assert later == first


def test_a_job_that_waits_for_the_policy_that_it_names_follows_no_inline_one():
    shown, _ = status(job("one", follows="default", balancing={"policyRef": {"name": "none"}}))
    assert condition(shown, "Conflict")["message"].startswith("job one follows BalancingPolicy none: ")


def test_a_policy_being_deleted_governs_nothing_and_has_no_conflict():
    mine = policy("p", 5, strategy="ZERO")
    mine["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    shown, events = policy_status(ObservedPolicy(mine, (mine,), (job("one"),), EPOCH))
    assert (shown["selectedJobs"], events, condition(shown, "Conflict")) == (0, (), {})


def test_a_job_with_an_invalid_spec_is_named():
    shown, _ = status(job("odd", balancing={"policyRef": 7}))
    assert "job odd: its own spec is invalid" in condition(shown, "Applied")["message"]


def test_seconds_saved_by_another_policy_do_not_count():
    shown, _ = status(job("one", follows="older", saved=50.0), job("two", labels={"a": "b"}, saved=1.0),
                      rivals=(policy("older", 1, selector={"matchLabels": {"no": "body"}}),))  # fmt: skip
    assert shown["savedSeconds"] == 51.0
    shown, _ = status(job("one", follows="older", saved=50.0), rivals=(policy("older", 1, strategy="MIG"),))
    assert shown["savedSeconds"] == 0
