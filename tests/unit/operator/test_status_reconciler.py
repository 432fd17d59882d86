"""Reconciles of policies and injections: their status is written when it is worth a write, and nothing else is."""

import pytest
from heterotp_operator.cluster import JOBS, POLICIES, STATUS_MANAGER, ApiError, NotFound
from heterotp_operator.informers import Informers
from heterotp_operator.metrics import Metrics
from heterotp_operator.published import PublishedControls
from heterotp_operator.queue import WorkQueue
from heterotp_operator.reconcile.actions import Event
from heterotp_operator.settings import Settings
from heterotp_operator.status_reconciler import StatusDecisions, StatusReconciler
from heterotp_operator.store import Stores, key_of
from heterotp_operator.trainer_poller import TrainerPoller
from support.reconcile_world import EPOCH, injection, labelled, manifest, policy
from support.reconcile_world import World as JobWorld

KEY = ("team", "p")


class Cluster:
    """Records applies and answers as an API server would."""

    def __init__(self):
        self.applied, self.error, self.generation = [], None, 1
        self.spec = policy("p")["spec"]

    async def apply(self, body, manager, subresource=""):
        self.applied.append((body, manager, subresource))
        if self.error is not None:
            raise self.error
        version = {"resourceVersion": str(100 + len(self.applied))}
        return {**body, "spec": self.spec, "metadata": {**body["metadata"], **version, "generation": self.generation}}


class Recorder:
    def __init__(self):
        self.events = []

    async def record(self, body, event):
        self.events.append((body["kind"], event.reason))


class World:
    def __init__(self):
        self.stores, self.cluster, self.recorder = Stores(), Cluster(), Recorder()
        self.now, self.wanted, self.news = EPOCH, {"savedSeconds": 1.0, "appliedJobs": 1}, ()
        self.wall_off = 0.0  # seconds by which the wall clock is wrong
        self.stores.policies.upsert(policy("p"))
        self.stores.jobs.upsert(labelled(manifest("one")))
        self.enqueued = []
        self.reconciler = StatusReconciler(
            POLICIES,
            Informers(self.stores, lambda kind, key: self.enqueued.append((kind, key))),
            lambda key, body, now: (self.wanted, self.news),
            self.cluster,
            self.recorder,
            lambda: self.now + self.wall_off,
            lambda: self.now,
        )

    async def writes(self):
        before = len(self.cluster.applied)
        await self.reconciler.reconcile(KEY)
        return len(self.cluster.applied) - before


@pytest.fixture
def world():
    return World()


async def test_the_status_is_applied_by_its_own_manager_and_remembered(world):
    assert await world.writes() == 1
    body, manager, subresource = world.cluster.applied[0]
    assert (manager, subresource) == (STATUS_MANAGER, "status")
    assert body == {
        "apiVersion": "heterotp.io/v1alpha1",
        "kind": "BalancingPolicy",
        "metadata": {"name": "p", "namespace": "team", "uid": "uid-p"},
        "status": world.wanted,
    }
    assert world.stores.policies.get(KEY)["status"] == world.wanted
    assert await world.writes() == 0


async def test_facts_are_written_at_once_and_numbers_later(world):
    await world.writes()
    world.wanted = {"savedSeconds": 1.01, "appliedJobs": 1}
    assert await world.writes() == 0
    world.now += 30
    assert await world.writes() == 1
    world.wanted = {"savedSeconds": 1.01, "appliedJobs": 2}
    assert await world.writes() == 1


async def test_a_delayed_status_is_enqueued_again(world):
    assert await world.reconciler.reconcile(KEY) is None
    world.wanted = {"savedSeconds": 1.01, "appliedJobs": 1}
    world.now += 10
    assert await world.reconciler.reconcile(KEY) == pytest.approx(20)
    world.now += 20
    assert await world.reconciler.reconcile(KEY) is None


@pytest.mark.parametrize("jump", [600.0, -600.0])
async def test_a_wall_clock_that_jumps_changes_no_delay(world, jump):
    await world.writes()
    world.wanted = {"savedSeconds": 1.01, "appliedJobs": 1}
    world.wall_off = jump
    assert await world.reconciler.reconcile(KEY) == pytest.approx(30)


async def test_events_follow_the_status(world):
    world.news = (Event("Warning", "DoesNotFit", "x"),)
    world.cluster.error = ApiError(500, "", "")
    with pytest.raises(ApiError):
        await world.writes()
    assert world.recorder.events == []
    world.cluster.error = None
    await world.writes()
    assert world.recorder.events == [("BalancingPolicy", "DoesNotFit")]


async def test_an_edit_that_an_answer_shows_first_is_not_lost(world):
    world.cluster.generation, world.cluster.spec = 2, {**world.cluster.spec, "strategy": "MIG"}
    await world.writes()
    assert (JOBS, ("team", "one")) in world.enqueued  # its watch event will bring nothing new any more
    assert (POLICIES, KEY) in world.enqueued


async def test_a_deleted_object_gets_no_status(world):
    world.cluster.error = NotFound(404, "", "")
    assert await world.writes() == 1
    world.stores.policies.drop(policy("p"))
    assert await world.writes() == 0


async def test_another_object_of_the_same_name_has_its_own_write_times(world):
    await world.writes()
    again = policy("p")
    again["metadata"] |= {"uid": "another", "resourceVersion": "900"}
    again["status"] = {"appliedJobs": 1, "savedSeconds": 1.0}
    world.stores.policies.upsert(again)
    world.wanted = {"savedSeconds": 1.01, "appliedJobs": 1}
    assert await world.writes() == 1  # it was never written, so its number is old enough
    world.stores.policies.drop({"metadata": again["metadata"]})
    await world.writes()
    assert world.reconciler._memories == {}


class Decisions:
    """The stores, and the statuses that are decided on them and on the recorded control documents."""

    def __init__(self):
        self.stores, self.published = Stores(), PublishedControls()
        poller = TrainerPoller(self.stores, self.published, WorkQueue().add, 5.0, 1.0, "me", Metrics())
        self.decide = StatusDecisions(self.stores, poller, Settings(), self.published)

    def take(self, name, control):
        """Store a job, with the control document of its last reconcile."""
        self.stores.jobs.upsert(labelled(manifest(name)))
        if control is not None:
            self.published.record(("team", name), control)

    def injection(self, body):
        self.stores.injections.upsert(body)
        return self.decide.injection(key_of(body), body, EPOCH)[0]


def control_of(job, *injections):
    """Return the control document that a reconcile of the job decides with these injections."""
    world = JobWorld(labelled(manifest(job)))
    world.injections = {body["metadata"]["name"]: body for body in injections}
    return world.observe().control


def test_a_policy_reads_the_jobs_and_policies_of_its_namespace():
    world = Decisions()
    for each in (policy("p"), policy("q", 1, strategy="MIG")):
        world.stores.policies.upsert(each)
    world.take("one", None)
    elsewhere = labelled(manifest("far"))
    elsewhere["metadata"] |= {"namespace": "elsewhere", "uid": "far"}
    world.stores.jobs.upsert(elsewhere)
    status, _ = world.decide.policy(KEY, world.stores.policies.get(KEY), EPOCH)
    assert status["selectedJobs"] == 1
    rival, _ = world.decide.policy(("team", "q"), world.stores.policies.get(("team", "q")), EPOCH)
    assert [c["type"] for c in rival["conditions"] if c["status"] == "True"] == ["Accepted", "Conflict"]


def test_an_injection_reads_its_target_jobs():
    body = injection("i", jobRef={"name": "one"}, targets={"ranks": [9]})
    world = Decisions()
    for name in ("one", "two"):
        world.take(name, control_of(name, body))
    assert world.injection(body)["message"] == "job one: spec.targets.ranks: 9: the job has ranks 0 .. 2"


def test_the_status_of_an_injection_reads_the_recorded_control_document_and_decides_none():
    body = injection("i", jobRef={"name": "one"}, targets={"ranks": [1]})
    world = Decisions()
    world.take("one", control_of("one", body))
    status = world.injection(body)
    assert ([row["rank"] for row in status["ranks"]], status["phase"]) == ([1], "Pending")


@pytest.mark.parametrize("live", [{}, {"phase": "Injecting", "ranks": [{"job": "one", "rank": 1, "since": "t"}]}])
def test_the_status_of_an_injection_stays_until_the_first_reconcile_of_its_jobs(live):
    body = injection("i", jobRef={"name": "one"}, targets={"ranks": [1]}) | {"status": live}
    world = Decisions()
    world.take("one", None)
    assert world.decide.injection(("team", "i"), body, EPOCH) == (live, ())
