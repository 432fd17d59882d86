"""The work queue keeps client-go's promises, by a clock that the test turns."""

import asyncio

import pytest
from heterotp_operator.queue import MAX_DELAY_SECONDS, NEIGHBOUR_SECONDS, WorkQueue
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


async def test_a_key_wakes_one_worker_and_a_cancelled_one_passes_it_on():
    queue, looks = WorkQueue(), 0
    take = queue.take

    def counted():
        nonlocal looks
        looks += 1
        return take()

    queue.take = counted
    waiting = [asyncio.create_task(queue.get()) for _ in range(8)]
    await asyncio.sleep(0)
    assert looks == 8
    queue.add(A)
    waiting[0].cancel()  # it was just woken
    done, waiting = await asyncio.wait(waiting[1:], return_when=asyncio.FIRST_COMPLETED, timeout=10)
    assert [task.result() for task in done] == [A]
    assert looks == 9, "the others sleep on"
    queue.add_after(B, 0.01)
    queue.add_after(("ns", "c"), 0.01)
    async with asyncio.timeout(10):
        while sum(task.done() for task in waiting) < 2:
            await asyncio.sleep(0.005)
    assert {task.result() for task in waiting if task.done()} == {B, ("ns", "c")}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_turn_that_several_keys_wait_for_is_passed_on():
    """One namespace holds all that it may; when its work ends, every worker that may take a key has one."""
    queue = WorkQueue(workers=4)
    for number in range(8):
        queue.add(("bad", str(number)))
    held = [await queue.get(), await queue.get()]
    waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    for name in "ab":
        queue.add(("good", name))
    async with asyncio.timeout(10):
        assert (await waiting[0])[0] == "good"
    for key in held:
        queue.done(key)
    async with asyncio.timeout(10):
        assert (await waiting[1]) is not None


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


class CountingQueue(WorkQueue):
    """Counts how often a worker looks for a key."""

    looks = 0

    def take(self):
        self.looks += 1
        return super().take()


async def _waiting(queue, workers):
    tasks = [asyncio.create_task(queue.get()) for _ in range(workers)]
    await asyncio.sleep(0)
    return tasks


async def test_one_key_wakes_one_of_the_workers_that_wait():
    queue = CountingQueue()
    tasks = await _waiting(queue, 50)
    queue.looks = 0
    queue.add(A)
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [A] and queue.looks == 1
    queue.add(B)
    assert await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def test_a_timer_wakes_one_of_the_workers_that_wait():
    queue = CountingQueue()
    tasks = await _waiting(queue, 50)
    queue.looks = 0
    queue.add_after(A, 0.01)
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [A] and queue.looks == 1
    for task in tasks:
        task.cancel()


async def test_a_worker_that_ends_when_it_is_woken_leaves_the_key_to_another():
    queue = WorkQueue()
    first, second = await _waiting(queue, 2)
    queue.add(A)
    first.cancel()
    assert await second == A


def test_other_namespaces_count_for_a_second_after_their_last_key():
    clock = [0.0]
    queue = WorkQueue(now=lambda: clock[0])

    def work(namespace):
        queue.add((namespace, "job"))
        queue.done(queue.take())

    ours = ("ours", "gang")
    assert not queue.beside_others(ours)
    work("ours")
    assert not queue.beside_others(ours), "its own keys are no neighbours"
    assert queue.beside_others(("other", "job"))
    work("other")
    work("ours")
    assert queue.beside_others(ours)
    clock[0] = NEIGHBOUR_SECONDS + 0.1
    work("ours")
    assert not queue.beside_others(ours)
