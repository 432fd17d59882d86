"""A task that ends by any exception is counted and started again; nothing but being cancelled ends it."""

import asyncio

import pytest
from heterotp_operator.metrics import Metrics
from heterotp_operator.supervision import PAUSE_SECONDS, supervise


@pytest.mark.parametrize(
    "error", [UnicodeError("label empty"), RecursionError(), MemoryError(), KeyError("x"), None], ids=repr
)
async def test_a_task_that_ends_is_started_again(error):
    metrics, starts, pauses = Metrics(), [], []

    async def task():
        starts.append(1)
        if len(starts) == 3:
            await asyncio.get_running_loop().create_future()
        if error is not None:
            raise error

    async def sleep(seconds):
        pauses.append(seconds)

    supervised = asyncio.create_task(supervise("poller", task, metrics, sleep))
    async with asyncio.timeout(10):
        while len(starts) < 3:
            await asyncio.sleep(0)
    assert pauses == [PAUSE_SECONDS] * 2
    assert metrics.registry.get_sample_value("heterotp_operator_task_restarts_total", {"task": "poller"}) == 2
    supervised.cancel()
    with pytest.raises(asyncio.CancelledError):
        await supervised
