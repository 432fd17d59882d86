"""The parts of the process together: what enqueues which key, and when."""

import asyncio
from types import SimpleNamespace

import pytest
from heterotp_operator.__main__ import Operator, _lead, gang_settle_seconds
from heterotp_operator.cluster import JOBS, PODS, Cluster
from heterotp_operator.job_reconciler import SMALL_GANG
from heterotp_operator.metrics import Metrics
from heterotp_operator.settings import Settings
from support.reconcile_world import World, manifest


@pytest.mark.parametrize(("pods", "seconds"), [(0, 0.0), (1, 0.1), (SMALL_GANG, 0.1), (1024, 0.125), (16_384, 2.0)])
def test_changes_of_a_gang_are_gathered(pods, seconds):
    assert gang_settle_seconds(pods) == seconds


@pytest.mark.parametrize(("jobs", "seconds"), [(100, 0.1), (300, 0.3), (5000, 0.5)])
def test_changes_of_many_gangs_are_gathered_for_longer(jobs, seconds):
    assert gang_settle_seconds(8, jobs) == seconds
    assert gang_settle_seconds(0, jobs) == 0.0
    assert gang_settle_seconds(16_384, jobs) == 2.0


@pytest.mark.parametrize("pods", [2, 300])
def test_a_pod_enqueues_its_job_once_the_pods_that_change_with_it_may_have_done_so(pods):
    operator = Operator(Settings(), Cluster(None, Metrics()), Metrics())
    world = World(manifest(groups=(("a", pods, 1),)))
    world.settle()
    operator.informers.upsert(JOBS, world.job)
    queue = operator.queues[JOBS]
    queue.done(queue.take())
    for pod in world.pods.values():
        operator.stores.pods.upsert(pod | {"metadata": pod["metadata"] | {"resourceVersion": "1"}})
    last = pod | {"metadata": pod["metadata"] | {"resourceVersion": "2"}, "status": {"phase": "Running"}}
    operator.informers.upsert(PODS, last)
    assert queue.take() is None
    assert 0 < queue.promote() <= gang_settle_seconds(pods)


def test_pods_of_one_job_of_many_are_gathered_for_longer():
    operator = Operator(Settings(), Cluster(None, Metrics()), Metrics())
    world = World(manifest())
    world.settle()
    for number in range(500):
        metadata = world.job["metadata"] | {"name": f"job-{number}", "uid": str(number), "resourceVersion": "1"}
        operator.stores.jobs.upsert(world.job | {"metadata": metadata})
    pod = next(iter(world.pods.values()))
    operator.informers.upsert(PODS, pod | {"metadata": pod["metadata"] | {"resourceVersion": "1"}})
    assert gang_settle_seconds(1) < operator.queues[JOBS].promote() <= gang_settle_seconds(1, 500)


def test_a_job_without_pods_is_looked_at_at_once():
    operator = Operator(Settings(), Cluster(None, Metrics()), Metrics())
    operator.informers.upsert(JOBS, World(manifest()).job)
    assert operator.queues[JOBS].take() == ("team", "job")


async def test_a_signal_that_comes_while_kopf_starts_ends_the_process():
    stopped, working, ended = asyncio.Event(), asyncio.Event(), []

    async def for_ever(name):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def watch():
        stopped.set()  # by our handler: kopf has not replaced it yet
        await for_ever("watch")

    working.set()
    lease = SimpleNamespace(keep=lambda: for_ever("lease"))
    operator = SimpleNamespace(lease=lease, work=lambda: for_ever("work"), working=working, watch=watch)
    async with asyncio.timeout(10):
        await _lead(operator, stopped)
    assert ended == ["watch", "work", "lease"]
