"""The Lease gate: one leader at a time, judged by a clock of its own."""

import asyncio

import pytest
from heterotp_operator.cluster import ApiError, Conflict, NotFound
from heterotp_operator.lease import LeaseGate, LeaseTimes


class World:
    """A clock that sleeping turns, and an API server with one Lease."""

    def __init__(self):
        self.now, self.lease, self.version, self.down = 0.0, None, 0, False
        self.left: list[str] = []

    async def sleep(self, seconds):
        self.now += seconds
        await asyncio.sleep(0)

    def _answer(self):
        if self.down:
            raise ApiError(0, "ClientConnectorError", "down")

    async def get(self, resource, namespace, name):
        self._answer()
        if self.lease is None:
            raise NotFound(404, "NotFound", name)
        return self.lease

    def _store(self, body):
        self.version += 1
        metadata = {**body["metadata"], "uid": "u", "resourceVersion": str(self.version)}
        self.lease = {**body, "metadata": metadata}
        return self.lease

    async def create(self, body):
        self._answer()
        if self.lease is not None:
            raise Conflict(409, "AlreadyExists", "taken")
        return self._store(body)

    async def replace(self, body):
        self._answer()
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "stale")
        return self._store(body)

    @property
    def holder(self):
        return self.lease["spec"]["holderIdentity"]

    def gate(self, identity):
        return LeaseGate(
            self,
            "ns",
            "lease",
            identity,
            now=lambda: self.now,
            sleep=self.sleep,
            leave=lambda: self.left.append(identity),
        )


@pytest.fixture
def world():
    return World()


async def test_the_first_creates_the_lease(world):
    gate = world.gate("a")
    await gate.acquire()
    assert gate.leading
    spec = world.lease["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 15, 1)


async def test_a_standby_takes_over_15_s_after_the_last_renewal(world):
    await world.gate("a").acquire()
    standby = world.gate("b")
    await standby.acquire()
    assert 15 <= world.now <= 17 + 1e-9
    assert (world.holder, world.lease["spec"]["leaseTransitions"]) == ("b", 2)


async def test_a_renewing_holder_is_never_overtaken(world):
    holder, standby = world.gate("a"), world.gate("b")
    await holder.acquire()
    for _ in range(50):
        assert not await standby._attempt()
        world.now += 2
        assert await holder._attempt()
    assert world.holder == "a"
    assert world.lease["spec"]["leaseTransitions"] == 1, "a renewal is no transition"


async def test_after_release_the_standby_serves_at_its_next_try(world):
    holder, standby = world.gate("a"), world.gate("b")
    await holder.acquire()
    assert not await standby._attempt()
    await holder.release()
    assert not holder.leading
    assert await standby._attempt()


async def test_release_leaves_the_lease_of_another_alone(world):
    holder = world.gate("a")
    await holder.acquire()
    world.lease["spec"]["holderIdentity"] = "b"
    await holder.release()
    assert world.holder == "b"


async def test_a_process_with_the_same_identity_holds_the_lease_at_once(world):
    await world.gate("pod-0").acquire()
    await world.gate("pod-0").acquire()
    assert world.now == 0


async def test_a_holder_that_cannot_renew_for_10_s_exits_before_a_takeover(world):
    holder = world.gate("a")
    await holder.acquire()
    world.down = True
    await holder.keep()
    assert world.left == ["a"]
    assert 10 <= world.now < 15


async def test_a_short_outage_is_survived(world):
    holder = world.gate("a")
    await holder.acquire()
    keeping = asyncio.create_task(holder.keep())
    world.down = True
    while world.now < 8:
        await asyncio.sleep(0)
    world.down = False
    while world.now < 100:
        await asyncio.sleep(0)
    assert world.left == []
    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping


async def test_a_holder_that_finds_another_holder_exits_at_once(world):
    holder = world.gate("a")
    await holder.acquire()
    await world.gate("b").acquire()
    woke = world.now
    await holder.keep()
    assert world.left == ["a"]
    assert world.now - woke <= 2
    assert world.holder == "b"


async def test_a_lost_race_is_not_leadership(world):
    await world.gate("a").acquire()
    late = world.gate("b")
    await late._attempt()
    world.now += 20
    stale = dict(world.lease, metadata=dict(world.lease["metadata"], resourceVersion="0"))
    world.get = lambda *_: _value(stale)
    assert not await late._attempt()
    assert world.holder == "a"


async def _value(value):
    return value


async def test_after_a_call_that_hangs_another_one_is_tried_at_once(world, caplog):
    times = LeaseTimes(duration=9, renew_deadline=6, retry=1.2)  # by the real clock, but for the sleeps
    done = []

    async def sleep(seconds):
        done.append("sleep")
        await asyncio.sleep(0.01)

    async def get(*arguments):
        done.append("call")
        if done.count("call") == 1:
            await asyncio.Event().wait()
        return await answered(*arguments)

    holder = LeaseGate(world, "ns", "lease", "a", times, sleep=sleep, leave=lambda: world.left.append("a"))
    await holder.acquire()
    answered, world.get = world.get, get
    keeping = asyncio.create_task(holder.keep())
    async with asyncio.timeout(30):
        while world.version < 3 and not keeping.done():
            await asyncio.sleep(0.01)
    assert done[:3] == ["sleep", "call", "call"] and world.left == []
    assert "Lease ns/lease: no answer for " in caplog.text
    keeping.cancel()
