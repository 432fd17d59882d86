"""The reconcile of a job as a whole: writes, waiting for the ranks, and the objects that are enqueued afterwards."""

import copy

import pytest
from heterotp_api.trainer_status import TrainerStatus
from heterotp_operator.cluster import INJECTIONS, JOBS, POLICIES
from heterotp_operator.informers import Informers
from heterotp_operator.job_reconciler import JobReconciler
from heterotp_operator.metrics import Metrics
from heterotp_operator.published import PublishedControls
from heterotp_operator.queue import WorkQueue
from heterotp_operator.reconcile.observed import TrainerReport
from heterotp_operator.settings import Settings
from heterotp_operator.status_throttle import ANSWER_SECONDS, WHOLE_SECONDS
from heterotp_operator.store import Stores, key_of
from support.reconcile_world import EPOCH, World, injection, labelled, manifest, policy

KEY = ("team", "job")


class Cluster:
    """Applies every write and answers with the object, as an API server would; counts status writes."""

    def __init__(self, stores):
        self.stores, self.version, self.statuses, self.configmaps, self.touched = stores, 100, [], 0, []
        self.labels = {}

    def _answer(self, body):
        self.version += 1
        return {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}

    async def apply(self, body, manager, subresource=""):
        if body["kind"] == "ConfigMap":
            self.configmaps += 1
            return self._answer(body)
        self.statuses.append(body["status"])
        live = copy.deepcopy(self.stores.jobs.get(key_of(body)))
        live["status"] |= body["status"]
        live["metadata"]["labels"] = {**live["metadata"].get("labels", {}), **self.labels}
        return self._answer(live)

    async def merge(self, resource, namespace, name, patch):
        self.touched.append(name)
        pod = copy.deepcopy(self.stores.pods.get((namespace, name)))
        pod["metadata"].setdefault("annotations", {}).update(patch["metadata"]["annotations"])
        return self._answer(pod)


class TrainerPoller:
    def __init__(self):
        self.last_report, self.forgotten, self.queue = None, [], WorkQueue()

    def report(self, key):
        return self.last_report

    def progress(self, key):
        return None

    def forget(self, key):
        self.forgotten.append(key)


class Recorder:
    async def record(self, body, event):
        pass


class Job:
    """A job that runs, with all its children in the stores."""

    def __init__(self):
        self.now, self.enqueued, self.published = EPOCH, [], PublishedControls()
        self.wall_off = 0.0  # seconds by which the wall clock is wrong
        self.stores, self.poller, self.metrics = Stores(), TrainerPoller(), Metrics()
        informers = Informers(self.stores, lambda kind, key: self.enqueued.append((kind, key)))
        self.cluster, self.queue = Cluster(self.stores), WorkQueue(lambda: self.now)
        settled = World(labelled(manifest())).started()
        settled.trainer = self._report(1)
        settled.settle()
        for resource, bodies in (
            (JOBS, [settled.job]),
            *((resource_of_kind(kind), [body]) for kind, body in settled.objects.items()),
            (resource_of_kind("Pod"), settled.pods.values()),
        ):
            for body in bodies:
                body["metadata"].setdefault("resourceVersion", "1")
                body["metadata"].setdefault("uid", body["metadata"]["name"])
                informers.upsert(resource, copy.deepcopy(body))
        self.poller.last_report = settled.trainer
        self.reconciler = JobReconciler(
            *(self.stores, informers, self.cluster, self.queue, self.poller, Recorder(), self.metrics),
            Settings(trainer_image="heterotp/trainer:test"),
            self.published,
            lambda: self.now + self.wall_off,
            lambda: self.now,
        )

    def _report(self, applied):
        status = TrainerStatus(
            job="job", attempt=1, state="running", started_at=EPOCH, applied_generation=applied, strategy="AUTO"
        )
        return TrainerReport(status, "", EPOCH)

    def ranks_report(self, applied):
        self.poller.last_report = self._report(applied)

    async def look(self):
        """Reconcile once; return how many statuses were written."""
        before = len(self.cluster.statuses)
        self.enqueued.clear()
        await self.reconciler.reconcile(KEY)
        return len(self.cluster.statuses) - before

    async def rest(self):
        """Reconcile until nothing more is written."""
        while await self.look():
            pass


def resource_of_kind(kind):
    from heterotp_operator.cluster import CONFIGMAPS, PODS, SERVICES

    return {"ConfigMap": CONFIGMAPS, "Service": SERVICES, "Pod": PODS}[kind]


@pytest.fixture
async def job():
    job = Job()
    await job.rest()
    return job


async def test_one_status_write_shows_a_policy_and_that_the_ranks_follow(job):
    job.stores.policies.upsert(policy("p", strategy="ZERO"))
    assert await job.look() == 0  # the ranks will answer in a moment
    assert (job.cluster.configmaps, job.cluster.touched) == (1, ["job-a-0-1"])
    assert job.published.get(KEY).document.generation == 2
    assert job.poller.queue.promote() is not None  # rank 0 is asked soon
    job.ranks_report(applied=2)
    assert await job.look() == 1
    balancing = job.cluster.statuses[-1]["balancing"]
    assert (balancing["policy"], balancing["generation"], balancing["appliedGeneration"]) == ("p", 2, 2)
    assert (
        job.metrics.registry.get_sample_value(
            "heterotp_operator_policy_published_total", {"namespace": "team", "strategy": "ZERO"}
        )
        == 1
    )


def begin(job, others):
    """Have only just made the pods of the job's first attempt, beside so many other jobs."""
    job.cluster.version, job.poller.last_report = 300, None
    live = job.stores.jobs.get(KEY)
    for number in range(others):
        metadata = live["metadata"] | {"name": f"other-{number}", "uid": str(number)}
        job.stores.jobs.upsert(live | {"metadata": metadata})
    first = {"attempt": 1, "restarts": 0, "phase": "Pending"}
    job.stores.jobs.upsert(live | {"metadata": live["metadata"] | {"resourceVersion": "200"}, "status": first})
    for pod in list(job.stores.pods.of_job(KEY)):
        metadata = pod["metadata"] | {"resourceVersion": "200"}
        job.stores.pods.upsert(pod | {"metadata": metadata, "status": {"phase": "Pending"}})


@pytest.mark.parametrize(("others", "seconds"), [(0, 1.0), (199, 20.0), (999, 62.5)])
async def test_that_all_pods_were_made_is_written_late_where_many_jobs_begin(job, others, seconds):
    begin(job, others)
    assert await job.look() == 0
    job.now += seconds - 0.1
    assert await job.look() == 0
    job.now += 0.2
    assert await job.look() == 1
    assert (job.cluster.statuses[-1]["phase"], job.cluster.statuses[-1]["completedAttempt"]) == ("Starting", 1)


async def test_a_change_of_a_message_is_written_after_30_seconds(job):
    status = job.poller.last_report.status.model_copy(update={"reason": "no rank is slower"})
    job.poller.last_report = TrainerReport(status, "", EPOCH)
    assert await job.look() == 1
    job.poller.last_report = TrainerReport(status.model_copy(update={"reason": "no rank is much slower"}), "", EPOCH)
    while job.queue.take():  # its own write
        job.queue.done(KEY)
    assert await job.look() == 0
    job.now += 29
    assert job.queue.take() is None
    job.now += 1
    assert job.queue.take() == KEY  # it comes back by itself
    job.queue.done(KEY)
    assert await job.look() == 1
    assert job.cluster.statuses[-1]["balancing"]["reason"] == "no rank is much slower"


@pytest.mark.parametrize(
    ("shown", "labels", "again"),
    [({"iteration": 9, "loss": 1.0}, {}, False), ({"decision_id": 2}, {}, True), ({"iteration": 9}, {"x": "y"}, True)],
    ids=["numbers", "a fact", "another's edit in the answer"],
)
async def test_a_write_of_numbers_alone_is_not_reconciled_again(job, shown, labels, again):
    while job.queue.take():
        job.queue.done(KEY)
    status = job.poller.last_report.status.model_copy(update=shown)
    job.poller.last_report, job.cluster.labels = TrainerReport(status, "", EPOCH), labels
    job.now += WHOLE_SECONDS
    assert await job.look() == 1
    assert (job.queue.take() is not None) is again


async def test_ranks_that_do_not_answer_are_not_waited_for_long(job):
    job.stores.policies.upsert(policy("p", strategy="ZERO"))
    assert await job.look() == 0
    job.now += ANSWER_SECONDS + 0.1
    assert job.queue.take() == KEY  # it comes back by itself
    assert await job.look() == 1
    assert job.cluster.statuses[-1]["balancing"]["appliedGeneration"] == 1
    job.ranks_report(applied=2)
    assert await job.look() == 1
    edited = policy("p", strategy="MIG")
    edited["metadata"] |= {"generation": 2, "resourceVersion": "2"}
    job.stores.policies.upsert(edited)
    assert await job.look() == 0  # the next change has its own moment


@pytest.mark.parametrize("jump", [600.0, -600.0])
async def test_a_wall_clock_that_jumps_postpones_no_status(job, jump):
    job.stores.policies.upsert(policy("p", strategy="ZERO"))
    assert await job.look() == 0
    job.wall_off = jump
    assert await job.look() == 0
    job.now += ANSWER_SECONDS + 0.1
    assert await job.look() == 1


async def test_policies_and_injections_of_a_job_are_enqueued_after_it(job):
    job.stores.policies.upsert(policy("p"))
    job.stores.injections.upsert(injection("i"))
    await job.look()
    assert {(POLICIES, ("team", "p")), (INJECTIONS, ("team", "i"))} <= set(job.enqueued)


async def test_a_policy_that_a_label_change_leaves_is_enqueued(job):
    job.stores.policies.upsert(policy("p"))
    await job.look()
    job.cluster.labels = {"a": "c"}  # the job's labels change while its status is written
    job.ranks_report(applied=2)
    assert await job.look() == 1
    assert job.stores.jobs.get(KEY)["metadata"]["labels"] == {"a": "c"}
    assert (POLICIES, ("team", "p")) in job.enqueued


async def test_a_deleted_job_is_dropped_by_poller_and_published_documents(job):
    job.stores.jobs.drop(job.stores.jobs.get(KEY))
    assert await job.look() == 0
    assert job.published.get(KEY) is None and job.poller.forgotten == [KEY]
