"""What is enqueued when something happens: the jobs that a policy or an injection selects, now and before."""

import pytest
from heterotp_operator.cluster import INJECTIONS, JOBS, PODS, POLICIES
from heterotp_operator.informers import Informers
from heterotp_operator.store import Stores
from support.reconcile_world import injection, labelled, manifest, policy


def newer(body, **metadata):
    """Return the object one version later."""
    version = str(int(body["metadata"]["resourceVersion"]) + 1)
    return {**body, "metadata": {**body["metadata"], "resourceVersion": version, **metadata}}


def edited(body, **spec):
    """Return the object with another spec: its generation is higher."""
    return {**newer(body, generation=body["metadata"]["generation"] + 1), "spec": {**body["spec"], **spec}}


class World:
    """Informers with three jobs: two with label a=b, one with a=c."""

    def __init__(self):
        self.stores, self.seen = Stores(), []
        self.informers = Informers(self.stores, lambda kind, key: self.seen.append((kind.plural, key[1])))
        for name, label in (("one", "b"), ("two", "b"), ("other", "c")):
            self.informers.upsert(JOBS, labelled(manifest(name), a=label))
        self.seen.clear()

    def after(self, verb, resource, body):
        """Let something happen; return what was enqueued because of it."""
        self.seen.clear()
        getattr(self.informers, verb)(resource, body)
        return set(self.seen)


@pytest.fixture
def world():
    return World()


def jobs(*names):
    return {("heterotpjobs", name) for name in names}


P, I = ("balancingpolicies", "p"), ("stragglerinjections", "i")  # noqa: E741


def test_a_policy_enqueues_jobs_that_it_selects_now_or_selected_before(world):
    body = policy("p")
    assert world.after("upsert", POLICIES, body) == {P, *jobs("one", "two")}
    body = edited(body, selector={"matchLabels": {"a": "c"}})
    assert world.after("upsert", POLICIES, body) == {P, *jobs("one", "two", "other")}
    assert world.after("drop", POLICIES, newer(body)) == {P, *jobs("other")}


def test_a_policy_enqueues_other_policies_of_its_jobs(world):
    world.after("upsert", POLICIES, policy("rival"))
    assert ("balancingpolicies", "rival") in world.after("upsert", POLICIES, policy("p"))


def test_a_policy_enqueues_the_jobs_that_name_it(world):
    world.after("upsert", JOBS, labelled(manifest("named", balancing={"policyRef": {"name": "p"}}), a="x"))
    assert world.after("upsert", POLICIES, policy("p", selector={"matchLabels": {"no": "body"}})) == {P, *jobs("named")}


def test_an_injection_enqueues_the_jobs_that_it_names_or_selects(world):
    body = injection(jobRef={"name": "two"})
    assert world.after("upsert", INJECTIONS, body) == {I, *jobs("two")}
    body = edited(body, slowdown=3.0)
    assert world.after("upsert", INJECTIONS, body) == {I, *jobs("two")}
    assert world.after("drop", INJECTIONS, newer(body)) == {I, *jobs("two")}
    selecting = injection("i", selector={"matchLabels": {"a": "c"}})
    selecting["metadata"]["uid"] = "another"
    assert world.after("upsert", INJECTIONS, selecting) == {I, *jobs("other")}


@pytest.mark.parametrize(
    ("resource", "body"), [(POLICIES, policy("p")), (INJECTIONS, injection(jobRef={"name": "one"}))], ids=["p", "i"]
)
def test_a_status_change_of_a_policy_or_injection_enqueues_no_job(world, resource, body):
    world.after("upsert", resource, body)
    reported = {**newer(body), "status": {"phase": "Injecting"}}
    assert {kind for kind, _ in world.after("upsert", resource, reported)} == {resource.plural}


@pytest.mark.parametrize(
    ("resource", "body"), [(POLICIES, policy("p")), (INJECTIONS, injection(jobRef={"name": "one"}))], ids=["p", "i"]
)
def test_a_policy_or_injection_being_deleted_enqueues_jobs(world, resource, body):
    world.after("upsert", resource, body)
    leaving = newer(body, deletionTimestamp="2026-01-01T00:00:00Z")
    assert jobs("one") <= world.after("upsert", resource, leaving)


def test_the_same_name_again_is_another_policy(world):
    world.after("upsert", POLICIES, policy("p", strategy="ZERO"))
    again = newer(policy("p", strategy="MIG"), uid="another")
    assert world.after("upsert", POLICIES, again) == {P, *jobs("one", "two")}


def test_a_malformed_spec_raises_nothing(world):
    broken = policy("p")
    broken["spec"] = {"selector": 7}
    assert world.after("upsert", POLICIES, broken) == {P}


def test_a_job_enqueues_its_policies_and_injections_of_now_and_before(world):
    world.after("upsert", POLICIES, policy("p"))
    world.after("upsert", POLICIES, policy("stranger", selector={"matchLabels": {"x": "y"}}))
    world.after("upsert", INJECTIONS, injection(jobRef={"name": "one"}))
    moved = newer(labelled(manifest("one"), a="z"))
    assert world.after("upsert", JOBS, moved) == {P, I, *jobs("one")}
    assert world.after("upsert", JOBS, newer(newer(moved), labels={"a": "q"})) == {I, *jobs("one")}
    assert world.after("drop", JOBS, newer(labelled(manifest("two")))) == {P, *jobs("two")}


def test_objects_of_other_namespaces_are_not_enqueued(world):
    elsewhere = policy("p", namespace="elsewhere")
    assert world.after("upsert", POLICIES, elsewhere) == {P}


def test_a_deletion_known_by_name_alone_is_taken(world):
    world.after("upsert", POLICIES, policy("p"))
    gone = {"metadata": {"namespace": "team", "name": "one", "uid": "uid-one"}}
    assert world.after("drop", JOBS, gone) == {P, *jobs("one")}


def test_a_pod_enqueues_its_job_only(world):
    pod = {"metadata": {"name": "x", "namespace": "team", "uid": "x", "resourceVersion": "1",
                        "labels": {"heterotp.io/job": "one"}}, "spec": {}, "status": {}}  # fmt: skip
    assert world.after("upsert", PODS, pod) == jobs("one")


def test_dependents_of_a_job_are_enqueued_once_each(world):
    for each in (policy("p"), injection(jobRef={"name": "one"})):
        world.after("upsert", POLICIES if each["kind"] == "BalancingPolicy" else INJECTIONS, each)
    world.seen.clear()
    world.informers.enqueue_dependents(world.stores.jobs.get(("team", "one")), None)
    assert world.seen == [P, I]
