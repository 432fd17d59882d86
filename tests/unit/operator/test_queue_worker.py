"""One turn of a worker: what becomes of the key, and what is counted."""

import pytest
from heterotp_operator.cluster import ApiError, Conflict
from heterotp_operator.metrics import Metrics
from heterotp_operator.queue import WorkQueue
from heterotp_operator.queue_worker import QueueWorker

KEY = ("ns", "j")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class World:
    def __init__(self):
        self.clock, self.metrics = Clock(), Metrics()
        self.queue = WorkQueue(self.clock)
        self.outcome = None
        self.worker = QueueWorker("Kind", self.queue, self.metrics, self._reconcile)

    async def _reconcile(self, key):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    async def turn(self, outcome=None):
        """Work on the key once; return the result that was counted."""
        self.outcome = outcome
        before = self.counts()
        self.queue.add(KEY)
        assert self.queue.take() == KEY
        await self.worker._work_on(KEY)
        self.queue.done(KEY)
        (result,) = {name for name, count in self.counts().items() if count != before.get(name, 0)}
        return result

    def counts(self):
        families = self.metrics.registry.collect()
        found = [s for f in families for s in f.samples if s.name == "heterotp_operator_reconcile_total"]
        return {sample.labels["result"]: sample.value for sample in found}

    def ready_after(self, seconds):
        self.clock.now += seconds
        return self.queue.take() == KEY


@pytest.fixture
def world():
    return World()


async def test_a_key_without_a_delay_is_not_taken_again(world):
    assert await world.turn() == "success"
    assert not world.ready_after(1e6)


async def test_a_key_is_taken_again_after_its_delay(world):
    assert await world.turn(5.0) == "requeued"
    assert not world.ready_after(4.9)
    assert world.ready_after(0.2)


@pytest.mark.parametrize(
    ("error", "result"),
    [(Conflict(409, "", ""), "conflict"), (ApiError(500, "", ""), "error"), (ZeroDivisionError(), "error")],
    ids=["conflict", "api", "a bug"],
)
async def test_a_failed_key_is_retried_with_back_off_until_it_succeeds(world, error, result):
    waits = []
    for _ in range(4):
        assert await world.turn(error) == result
        waits.append(world.queue.promote())
        world.clock.now += waits[-1]
        assert world.queue.take() == KEY
        world.queue.done(KEY)
    assert waits == pytest.approx([waits[0], 2 * waits[0], 4 * waits[0], 8 * waits[0]])
    await world.turn()
    await world.turn(error)
    assert world.queue.promote() == pytest.approx(waits[0])  # a success has reset it


async def test_a_failed_key_is_no_longer_in_flight(world):
    await world.turn(ApiError(500, "", ""))
    assert world.metrics.registry.get_sample_value("heterotp_operator_reconciles_inflight", {"kind": "Kind"}) == 0
