"""Watches of the client of the API server: the lines of an answer without end, against a small HTTP server."""

import asyncio
import json
import sys

import pytest
from aiohttp import web
from heterotp_operator import answers
from heterotp_operator.__main__ import RECURSION_LIMIT
from heterotp_operator.answers import decoded
from heterotp_operator.cluster import PODS, ApiError, connect
from heterotp_operator.metrics import Metrics
from kubernetes.aio import client


class Stream:
    """Sends the given pieces, one write each, and then closes the connection or ends the answer."""

    def __init__(self):
        self.pieces, self.status, self.query = [], 200, {}
        self.breaks: asyncio.Event | None = None  # when the connection breaks

    async def handle(self, request):
        self.query = dict(request.query)
        response = web.StreamResponse(status=self.status)
        await response.prepare(request)
        for piece in self.pieces:
            await response.write(piece)
        if self.breaks is not None:
            await self.breaks.wait()
            request.transport.abort()
        return response


@pytest.fixture
async def stream():
    stream = Stream()
    app = web.Application()
    app.router.add_get("/api/v1/pods", stream.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    stream.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield stream
    await runner.cleanup()


@pytest.fixture
async def cluster(stream):
    cluster = await connect(client.Configuration(host=stream.host), Metrics(), rate=1000.0, timeout=5.0)
    yield cluster
    await cluster.close()


async def taken(cluster):
    return [event async for event in cluster.watch(PODS, None, 7, "x=y")]


def line(number, size=0):
    return json.dumps({"type": "ADDED", "object": {"number": number, "text": "x" * size}}).encode() + b"\n"


def numbers(events):
    return [event["object"]["number"] for event in events]


async def test_events_are_yielded_in_order_however_the_lines_are_cut(cluster, stream):
    text = b"".join(map(line, range(50)))
    stream.pieces = [text[at : at + 17] for at in range(0, len(text), 17)]
    assert numbers(await taken(cluster)) == list(range(50))


async def test_the_watch_asks_for_what_follows_a_version_and_for_an_end(cluster, stream):
    await taken(cluster)
    assert stream.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "labelSelector": "x=y",
        "resourceVersion": "7",
        "timeoutSeconds": "300",
    }


async def test_an_object_of_megabytes_is_one_event(cluster, stream):
    stream.pieces = [line(1, 3_000_000), line(2)]
    assert numbers(await taken(cluster)) == [1, 2]


async def test_an_event_beyond_all_bounds_is_an_error_and_not_memory(cluster, stream, monkeypatch):
    monkeypatch.setattr(answers, "MOST_EVENT_BYTES", 100_000)
    stream.pieces = [line(1), line(2, 1_000_000)]
    with pytest.raises(ApiError, match="longer than 100000 bytes"):
        await taken(cluster)


async def test_a_refusal_is_an_error_with_its_code(cluster, stream):
    stream.status, stream.pieces = 410, [json.dumps({"reason": "Expired", "message": "too old"}).encode()]
    with pytest.raises(ApiError, match="410 Expired: too old") as raised:
        await taken(cluster)
    assert raised.value.code == 410


@pytest.mark.parametrize("pieces", [[line(1), b'{"type": "ADD'], [line(1), b"nonsense\n"]], ids=["broken", "nonsense"])
async def test_a_broken_connection_and_nonsense_are_errors_after_what_came_before(cluster, stream, pieces):
    stream.pieces, stream.breaks, events = pieces, asyncio.Event(), []
    with pytest.raises(ApiError):
        async for event in cluster.watch(PODS, None, 7, "x=y"):
            events.append(event)
            stream.breaks.set()
    assert numbers(events) == [1]


@pytest.fixture
def deep_stack():
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(RECURSION_LIMIT)
    yield
    sys.setrecursionlimit(usual)


def test_answers_are_read_however_deep_they_are(deep_stack):
    depth = 5000
    deep = decoded(b'{"a":' * depth + b"1" + b"}" * depth)
    for _ in range(depth):
        deep = deep["a"]
    assert deep == 1
    with pytest.raises(ValueError):
        decoded(b"{")
