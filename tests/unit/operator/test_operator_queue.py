"""The work queue keeps client-go's promises, by a clock that the test turns."""

import asyncio

import pytest
from heterotp_operator.queue import MAX_DELAY_SECONDS, WorkQueue
from hypothesis import given
from hypothesis import strategies as st

A, B = ("ns", "a"), ("ns", "b")


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def queue(clock):
    return WorkQueue(clock)


def test_a_key_added_many_times_is_taken_once(queue):
    for _ in range(200):
        queue.add(A)
    assert len(queue) == 1
    assert queue.take() == A
    assert queue.take() is None


def test_keys_are_taken_in_the_order_they_were_added(queue):
    queue.add(B)
    queue.add(A)
    queue.add(B)
    assert [queue.take(), queue.take(), queue.take()] == [B, A, None]


def test_a_key_in_work_is_held_back_and_taken_once_more_afterwards(queue):
    queue.add(A)
    assert queue.take() == A
    queue.add(A)
    queue.add(A)
    assert queue.take() is None
    queue.done(A)
    assert queue.take() == A
    queue.done(A)
    assert queue.take() is None


def test_the_earliest_of_several_delays_counts(queue, clock):
    queue.add_after(A, 30)
    queue.add_after(A, 10)
    queue.add_after(A, 20)
    assert queue.promote() == 10
    clock.now += 9.9
    assert queue.take() is None
    clock.now += 0.2
    assert queue.take() == A
    queue.done(A)
    clock.now += 60
    assert queue.take() is None, "the later timers were overtaken"


def test_a_delay_of_0_is_due_at_once(queue):
    queue.add_after(A, 0)
    assert queue.take() == A


def test_back_off_doubles_from_5_ms_to_1000_s_and_is_forgotten_after_success(queue):
    delays = [queue.retry(A) for _ in range(40)]
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[-1] == MAX_DELAY_SECONDS == 1000
    assert delays == sorted(delays)
    assert queue.retry(B) == 0.005
    queue.forget(A)
    assert queue.retry(A) == 0.005


def test_a_discarded_key_has_no_timer_left(queue, clock):
    queue.add_after(A, 5)
    queue.discard(A)
    clock.now += 10
    assert queue.take() is None


def test_the_queue_reports_the_age_of_the_oldest_work(queue, clock):
    queue.add(A)
    queue.take()
    clock.now += 7
    assert (queue.working, queue.oldest_work_seconds()) == (1, 7)
    queue.done(A)
    assert (queue.working, queue.oldest_work_seconds()) == (0, 0)


async def test_workers_never_share_a_key_and_nothing_is_lost():
    queue, inside, seen = WorkQueue(), set(), []

    async def work():
        while True:
            key = await queue.get()
            assert key not in inside
            inside.add(key)
            await asyncio.sleep(0)
            seen.append(key)
            inside.discard(key)
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(4)]
    keys = [("ns", str(i % 7)) for i in range(300)]
    for key in keys:
        queue.add(key)
        await asyncio.sleep(0)
    queue.add_after(("ns", "late"), 0.01)
    async with asyncio.timeout(5):
        while ("ns", "late") not in seen or queue.working or len(queue):
            await asyncio.sleep(0.001)
    for worker in workers:
        assert not worker.done()
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert set(seen) == {*keys, ("ns", "late")}


@given(st.lists(st.tuples(st.sampled_from(["add", "take", "done", "later", "tick"]), st.sampled_from("abc"))))
def test_random_orders_keep_the_invariants(steps):
    clock = Clock()
    queue = WorkQueue(clock)
    owed: set[tuple[str, str]] = set()  # keys that must still be given out
    working: set[tuple[str, str]] = set()
    for step, name in steps:
        key = ("ns", name)
        if step == "add":
            queue.add(key)
            owed.add(key)
        elif step == "later":
            queue.add_after(key, 1)
        elif step == "tick":
            clock.now += 0.5
        elif step == "done" and key in working:
            queue.done(key)
            working.discard(key)
        elif step == "take" and (taken := queue.take()) is not None:
            assert taken not in working
            working.add(taken)
            owed.discard(taken)
    for key in working:
        queue.done(key)
    rest = set()
    while (taken := queue.take()) is not None:
        rest.add(taken)
        queue.done(taken)
    assert owed <= rest


def test_work_that_goes_on_is_not_stuck(queue, clock):
    queue.add(A)
    queue.take()
    clock.now += 299
    queue.progressed(A)
    queue.progressed(B)  # nobody works on it
    clock.now += 7
    assert queue.oldest_work_seconds() == 7


async def test_a_key_that_waits_for_its_namespaces_share_is_taken_when_a_worker_is_done():
    queue = WorkQueue(workers=2)
    queue.add(A)
    queue.add(B)
    assert await queue.get() == A
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done() and len(queue) == 1
    queue.done(A)
    async with asyncio.timeout(10):
        assert await waiting == B
