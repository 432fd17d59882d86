"""What is read of Kueue for one job: the Workload that a list missed, classes, and nothing for jobs at rest."""

import pytest
from heterotp_api import names, reasons
from heterotp_operator.cluster import ApiError, NotFound
from heterotp_operator.kueue_records import kueue_records
from heterotp_operator.store import Stores
from support.reconcile_world import manifest

KEY = ("team", "job")
QUEUED = {"provider": "kueue", "queue": "q", "priorityClassName": "high"}
WORKLOAD = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": {"name": "job", "namespace": "team", "uid": "w", "resourceVersion": "7"},
    "spec": {},
    "status": {},
}


class Server:
    """Answers each kind with an object or an error, and keeps what it was asked."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    async def get(self, resource, namespace, name):
        self.asked.append(resource.kind)
        answer = self.answers[resource.kind]
        if isinstance(answer, Exception):
            raise answer
        return answer


def stores_of(job, pods=1):
    stores = Stores()
    stores.jobs.upsert(job)
    for number in range(pods):
        labels = {names.LABEL_JOB: "job"}
        metadata = {"name": f"p{number}", "namespace": "team", "uid": f"p{number}", "labels": labels}
        stores.pods.upsert({"metadata": metadata, "spec": {}, "status": {"phase": "Running"}})
    return stores


def job(phase="Running", **policy):
    body = manifest(runPolicy={"gang": QUEUED, **policy})
    body["status"] = {"phase": phase, "workerGroups": [{"desired": 1}]}
    return body


async def test_a_gang_whose_workload_no_list_brought_is_asked_for():
    body = job()
    server, stores = Server(Workload=WORKLOAD), stores_of(body)
    found = await kueue_records(server, stores, KEY, body, "on")
    assert (found.workload["metadata"]["uid"], found.unknown) == ("w", False)
    assert stores.workloads.get(KEY) is not None


@pytest.mark.parametrize(
    ("error", "unknown"), [(NotFound(404, "NotFound", "gone"), False), (ApiError(500, "", "webhook"), True)]
)
async def test_only_a_workload_that_is_not_found_is_gone(error, unknown):
    body = job()
    found = await kueue_records(Server(Workload=error), stores_of(body), KEY, body, "on")
    assert (found.workload, found.unknown) == (None, unknown)


@pytest.mark.parametrize(
    "body", [job("Succeeded"), job("Failed"), job(suspend=True)], ids=["done", "failed", "suspended"]
)
async def test_a_job_at_rest_reads_nothing(body):
    server, stores = Server(), stores_of(body, pods=0)
    stores.workloads.upsert(WORKLOAD)
    found = await kueue_records(server, stores, KEY, body, "on")
    assert (found.workload["metadata"]["uid"], server.asked) == ("w", [])


async def test_the_number_of_a_class_is_read_and_a_missing_one_named():
    body = job("Pending")
    given = Server(PriorityClass={"value": 5})
    assert (await kueue_records(given, stores_of(body, 0), KEY, body, "on")).priority == 5
    missing = Server(PriorityClass=NotFound(404, "NotFound", "no such class"))
    found = await kueue_records(missing, stores_of(body, 0), KEY, body, "on")
    assert found.missing[0] == reasons.PRIORITY_CLASS_MISSING and "priorityClassName" in found.missing[1]


async def test_without_kueue_nothing_is_read():
    body = job()
    assert (await kueue_records(Server(), stores_of(body), KEY, body, "off")).workload is None
