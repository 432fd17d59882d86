"""The API server's clock decides on deadlines: the operator's own may be wrong."""

import itertools
import time
from email.utils import formatdate

import pytest
from aiohttp import web
from heterotp_operator.__main__ import Operator
from heterotp_operator.api_clock import ApiClock
from heterotp_operator.cluster import JOBS, connect
from heterotp_operator.metrics import Metrics
from heterotp_operator.reconcile.plan import plan
from heterotp_operator.settings import Settings
from kubernetes.aio import client
from support.reconcile_world import EPOCH, with_policy


@pytest.fixture
def times():
    """Seconds of the monotonic clock, and the API server's."""
    return {"monotonic": 50.0, "server": EPOCH}


@pytest.fixture
def clock(times):
    return ApiClock(lambda: times["monotonic"], lambda: times["server"] + 600)


def hear(clock, times, took=0.0):
    asked = times["monotonic"]
    date = formatdate(times["server"], usegmt=True)
    times["monotonic"] += took
    times["server"] += took
    clock.heard(date, asked)


def test_before_the_first_answer_the_own_clock_must_do(clock, times):
    assert clock.now() == EPOCH + 600
    clock.heard(None, 50.0)
    clock.heard("soon", 50.0)
    assert clock.now() == EPOCH + 600


@pytest.mark.parametrize("took", [0.0, 5.0])
def test_an_answer_brings_the_servers_time_whatever_the_own_clock_says(clock, times, took):
    hear(clock, times, took)
    assert abs(clock.now() - times["server"]) <= 0.5 + took
    times["monotonic"] += 100
    assert abs(clock.now() - times["server"] - 100) <= 0.5 + took


def test_many_answers_make_it_no_worse_and_it_hardly_ever_goes_back(clock, times):
    shown = []
    for step in range(200):
        times["monotonic"] += 0.37
        times["server"] += 0.37
        hear(clock, times, took=0.01 * (step % 3))
        shown.append(clock.now() - times["server"])
    assert max(map(abs, shown)) <= 1.0
    assert max(abs(a - b) for a, b in itertools.pairwise(shown[10:])) < 0.1


def test_a_server_whose_clock_is_set_is_followed(clock, times):
    hear(clock, times)
    times["server"] += 3600
    hear(clock, times)
    assert abs(clock.now() - times["server"]) <= 1.0


async def test_an_operator_whose_clock_is_ten_minutes_ahead_fails_no_job(monkeypatch, date_server):
    """Its pods were made a moment ago by the API server's clock, and have a minute to run."""
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + 600)
    cluster = await connect(client.Configuration(host=date_server), Metrics(), rate=1000.0, timeout=5.0)
    operator = Operator(Settings(), cluster, Metrics())
    await cluster.get(JOBS, "ns", "j")
    world = with_policy(preRunningDeadlineSeconds=60)
    world.now = true_time()
    world.settle()
    world.now = operator.poller._now()
    assert plan(world.observe()).status["phase"] != "Failed"
    clocks = [operator.poller, *(each._reconcile.__self__ for each in operator._workers)]
    assert {each._now for each in clocks} == {cluster.clock.now}
    await cluster.close()


@pytest.fixture
async def date_server():
    """The address of a server that answers with the true time as Date."""
    true_time = time.time

    async def answer(request):
        return web.json_response({}, headers={"Date": formatdate(true_time(), usegmt=True)})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()
