"""The record of a PodGroup is of this job and of its gang scheduler, or it is read anew."""

import pytest
from heterotp_operator.cluster import PODGROUPS, NotFound
from heterotp_operator.podgroup_records import podgroup_of
from heterotp_operator.store import Store, trim_child

KEY = ("ns", "j")


class Reader:
    """Holds PodGroups by apiVersion, and counts what is read."""

    def __init__(self):
        self.live, self.reads = {}, 0

    async def get(self, resource, namespace, name):
        self.reads += 1
        if resource.api_version not in self.live:
            raise NotFound(404, "NotFound", name)
        return self.live[resource.api_version]


def job(uid="new", provider="volcano"):
    return {
        "metadata": {"name": "j", "namespace": "ns", "uid": uid},
        "spec": {"runPolicy": {"gang": {"provider": provider}}},
    }


def group(provider="volcano", owner="new", version=1):
    reference = {"kind": "HeteroTPJob", "name": "j", "uid": owner, "controller": True}
    metadata = {"name": "j", "namespace": "ns", "uid": f"{provider}-{owner}", "resourceVersion": str(version)}
    api = PODGROUPS[provider].api_version
    return {"apiVersion": api, "kind": "PodGroup", "metadata": {**metadata, "ownerReferences": [reference]}, "spec": {}}


@pytest.fixture
def store():
    return Store(trim_child)


@pytest.fixture
def reader():
    return Reader()


async def test_it_is_read_once(reader, store):
    reader.live[PODGROUPS["volcano"].api_version] = group()
    for _ in range(2):
        assert (await podgroup_of(reader, store, KEY, job()))["metadata"]["uid"] == "volcano-new"
    assert reader.reads == 1


@pytest.mark.parametrize("known", [group(owner="earlier"), group(provider="coscheduling")], ids=["job", "scheduler"])
async def test_that_of_an_earlier_job_or_another_scheduler_is_forgotten(reader, store, known):
    store.upsert(known)
    assert await podgroup_of(reader, store, KEY, job()) is None  # it has gone with its job
    assert store.get(KEY) is None
    reader.live[PODGROUPS["volcano"].api_version] = group(version=9)
    assert (await podgroup_of(reader, store, KEY, job()))["metadata"]["uid"] == "volcano-new"


@pytest.mark.parametrize("provider", ["none", "kueue", None, 7])
async def test_jobs_without_one_read_nothing(reader, store, provider):
    assert await podgroup_of(reader, store, KEY, job(provider=provider)) is None
    assert reader.reads == 0
