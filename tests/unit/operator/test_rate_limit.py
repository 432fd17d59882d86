"""The limit of calls per second, and who comes next while calls wait for it."""

import asyncio

import pytest
from heterotp_operator.rate_limit import FairLimit, TokenBucket


def test_a_burst_is_let_through_and_then_calls_are_spaced():
    now = [0.0]
    bucket = TokenBucket(10, lambda: now[0])
    assert [bucket.take() for _ in range(20)] == [0] * 20
    assert bucket.take() == bucket.take() == pytest.approx(0.1)
    now[0] += 0.15
    assert [bucket.take(), bucket.take()] == [0, pytest.approx(0.05)]
    now[0] += 1000
    assert [bucket.take() for _ in range(21)] == [0] * 20 + [pytest.approx(0.1)]


class Bucket:
    """Has the tokens that the test gives."""

    def __init__(self, tokens):
        self.tokens = tokens

    def take(self):
        if not self.tokens:
            return 0.001
        self.tokens -= 1
        return 0.0


class Calls:
    """Calls of several namespaces, in the order in which they were let through."""

    def __init__(self, tokens=0):
        self.bucket, self.order = Bucket(tokens), []
        self.limit = FairLimit(self.bucket)

    async def begin(self, namespace, count):
        tasks = [asyncio.create_task(self._call(namespace)) for _ in range(count)]
        await asyncio.sleep(0)
        return tasks

    async def _call(self, namespace):
        await self.limit.wait(namespace)
        self.order.append(namespace)


async def test_a_call_of_another_namespace_is_the_next_but_one():
    calls = Calls()
    many = await calls.begin("bad", 1000)
    one = await calls.begin("good", 1)
    calls.bucket.tokens = 1001
    await asyncio.gather(*many, *one)
    assert calls.order.index("good") <= 1 and len(calls.order) == 1001


async def test_calls_of_one_namespace_keep_their_order_and_nobody_overtakes_them():
    calls = Calls(tokens=2)
    tasks = await calls.begin("a", 3)
    assert calls.order == ["a", "a"]
    calls.bucket.tokens = 2
    tasks += await calls.begin("a", 1)
    await asyncio.gather(*tasks)
    assert calls.bucket.tokens == 0


async def test_a_caller_that_gave_up_takes_nobody_s_turn():
    calls = Calls()
    gone, left = await calls.begin("a", 3), await calls.begin("b", 1)
    for task in gone:
        task.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    calls.bucket.tokens = 1
    await asyncio.gather(*left)
    assert (calls.order, calls.bucket.tokens) == (["b"], 0)
    calls.bucket.tokens = 1
    await asyncio.gather(*await calls.begin("c", 1))
    assert calls.order == ["b", "c"]
