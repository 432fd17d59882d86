"""Lists of Workloads that fail do not keep the operator from its work, and are tried again until one succeeds."""

import asyncio
from contextlib import suppress

import pytest
from heterotp_operator import resync
from heterotp_operator.cluster import WORKLOADS, ApiError, NotFound
from heterotp_operator.informers import Informers
from heterotp_operator.resync import Resync
from heterotp_operator.settings import Settings
from heterotp_operator.store import Stores

WORKLOAD = {"metadata": {"name": "job", "namespace": "team", "uid": "w", "resourceVersion": "1"}, "spec": {}}


class Lists:
    """Answers lists of Workloads with the given errors first; all other lists are empty."""

    def __init__(self, *errors):
        self.errors, self.asked = list(errors), 0

    async def pages(self, resource, namespace, selector=""):
        if resource is WORKLOADS:
            self.asked += 1
            if self.errors:
                raise self.errors.pop(0)
            yield [WORKLOAD], 2
        else:
            yield [], 2


@pytest.mark.parametrize(
    "error", [ApiError(500, "", "webhook"), ApiError(0, "TimeoutError", ""), NotFound(404, "", "")]
)
async def test_workloads_that_cannot_be_listed_at_the_start_are_listed_soon(monkeypatch, error):
    monkeypatch.setattr(resync, "UNWATCHED_SECONDS", 0.01)
    stores, lists = Stores(), Lists(error, error)
    task = asyncio.create_task(Resync(lists, stores, Informers(stores, lambda *_: None), Settings(kueue="on")).run())
    try:
        async with asyncio.timeout(10):
            while stores.workloads.get(("team", "job")) is None:
                await asyncio.sleep(0.005)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert lists.asked >= 3


async def test_workloads_that_are_watched_are_not_listed_again_and_again(monkeypatch):
    monkeypatch.setattr(resync, "UNWATCHED_SECONDS", 0.0)
    stores, lists = Stores(), Lists(ApiError(500, "", "webhook"))
    made = Resync(lists, stores, Informers(stores, lambda *_: None), Settings(kueue="on"))
    task = asyncio.create_task(made.run())
    try:
        async with asyncio.timeout(10):
            while lists.asked < 2:
                await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert lists.asked == 2, "its watch does the rest"
