"""A wall clock that jumps does not make the operator call itself sick: the kubelet would restart it."""

import asyncio
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from heterotp_operator import login, server
from heterotp_operator.metrics import Metrics
from support.ports import free_port
from yarl import URL


def health(port):
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as answer:
            return answer.read().decode()
    except HTTPError as error:
        with error:
            return error.read().decode()


@pytest.mark.parametrize("jump", [600.0, -600.0])
async def test_a_clock_that_jumps_is_no_dead_watch(monkeypatch, jump):
    watches, metrics, port = {}, Metrics(), free_port()
    trace = login.WatchTrace(metrics, watches)
    await trace._started(None, None, SimpleNamespace(url=URL("http://server/api/v1/pods?watch=true")))
    running = server.Server(metrics, watches, lambda: [], lambda: 0.0)
    await running.start("127.0.0.1", port)
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + jump)
    monkeypatch.setattr(login, "datetime", SimpleNamespace(now=lambda _: datetime.fromtimestamp(time.time(), UTC)))
    try:
        assert await asyncio.to_thread(health, port) == "ok"
    finally:
        await running.stop()
