"""Polling rank 0: its address, its answers, and when a job is enqueued."""

import asyncio
import json
import socket

import aiohttp
import pytest
from aiohttp import web
from heterotp_api import names
from heterotp_api.control import ControlDocument
from heterotp_operator.published import PublishedControls
from heterotp_operator.reconcile.control import Effective
from heterotp_operator.reconcile.injections import JobInjections
from heterotp_operator.reconcile.policies import Governing
from heterotp_operator.store import Stores
from heterotp_operator.trainer_poller import TrainerPoller, ask, target

KEY = ("ns", "j")
DOCUMENT = json.dumps(
    {
        "schemaVersion": 1,
        "job": "j",
        "attempt": 2,
        "state": "running",
        "iteration": 7,
        "startedAt": 1.5,
    }
)


def job(**spec):
    return {"metadata": {"namespace": "ns", "name": "j", "uid": "u"}, "spec": spec, "status": {"attempt": 2}}


def pod(rank="0", attempt="2", phase="Running", address="10.0.0.1", uid="p"):
    labels = {names.LABEL_JOB: "j", names.LABEL_FIRST_RANK: rank, names.LABEL_ATTEMPT: attempt}
    metadata = {"namespace": "ns", "name": f"j-{rank}-{attempt}-{uid}", "uid": uid, "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase, "podIP": address}}


@pytest.mark.parametrize(
    ("pods", "url"),
    [
        ([pod()], "http://10.0.0.1:9400/status"),
        ([pod(address="fd00::1")], "http://[fd00::1]:9400/status"),
        ([pod(rank="1"), pod(attempt="1"), pod(phase="Pending"), pod(phase="Succeeded"), pod(address="")], None),
        ([], None),
    ],
    ids=["v4", "v6", "none of these", "no pod"],
)
def test_the_target_of_a_poll_is_the_running_pod_of_rank_0(pods, url):
    found = target(job(), pods)
    assert (found and found.url) == url


def test_the_port_is_the_jobs_and_a_deleted_job_has_no_target():
    assert target(job(metrics={"port": 9500}), [pod()]).url == "http://10.0.0.1:9500/status"
    assert target(None, [pod()]) is None


class Rank0:
    """A server whose answer a test sets."""

    def __init__(self):
        self.answer = lambda: web.Response(text=DOCUMENT)
        self.headers = []

    async def handle(self, request):
        self.request = request
        self.headers.append(request.headers.get(names.LEASE_HEADER))
        answer = self.answer()
        return await answer if asyncio.iscoroutine(answer) else answer


@pytest.fixture
async def rank0():
    server, app = Rank0(), web.Application()
    app.router.add_get("/status", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    server.url = f"http://127.0.0.1:{server.port}/status"
    yield server
    await runner.cleanup()


async def hang():
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("answer", "failure", "error"),
    [
        (lambda: web.Response(status=503), "HttpError", "HTTP 503"),
        (lambda: web.Response(text="nothing"), "Malformed", "malformed status document: "),
        (
            lambda: web.Response(text=DOCUMENT.replace("7,", '"x",')),
            "Malformed",
            "malformed status document: iteration: ",
        ),
        (
            lambda: web.Response(text=DOCUMENT.replace("1,", "99,")),
            "Malformed",
            "malformed status document: schemaVersion: ",
        ),
        (hang, "NoConnection", "TimeoutError"),
    ],
    ids=["503", "no json", "bad field", "version", "silence"],
)
async def test_a_bad_answer_is_a_kind_of_failure_and_a_reason(rank0, answer, failure, error):
    rank0.answer = answer
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.2)) as http:
        found = await ask(http, rank0.url)
    assert (found.status, found.failure) == (None, failure)
    assert found.error.startswith(error), found.error


async def test_a_good_answer_is_the_document(rank0):
    async with aiohttp.ClientSession() as http:
        found = await ask(http, rank0.url)
    assert (found.status.iteration, found.status.attempt, found.failure, found.error) == (7, 2, "", "")


async def test_a_document_in_several_chunks_is_read_completely(rank0):
    async def slowly():
        response = web.StreamResponse()
        await response.prepare(rank0.request)
        for start in range(0, len(DOCUMENT), 40):
            await response.write(DOCUMENT[start : start + 40].encode())
            await asyncio.sleep(0.01)
        return response

    rank0.answer = slowly
    async with aiohttp.ClientSession() as http:
        found = await ask(http, rank0.url)
    assert (found.status and found.status.iteration, found.error) == (7, "")


async def test_an_endless_document_is_cut_off(rank0, monkeypatch):
    monkeypatch.setattr("heterotp_operator.trainer_poller.MAX_DOCUMENT_BYTES", 50)
    async with aiohttp.ClientSession() as http:
        found = await ask(http, rank0.url)
    assert (found.status, found.failure) == (None, "TooLong")
    assert found.error == "status document of more than 50 bytes"


async def test_a_refused_connection_is_a_failure():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        async with aiohttp.ClientSession() as http:
            found = await ask(http, f"http://127.0.0.1:{taken.getsockname()[1]}/status")
    assert (found.status, found.failure) == (None, "NoConnection")
    assert found.error.startswith("ClientConnectorError")


@pytest.fixture
async def polled(rank0):
    """A poller of one job at work, the keys that it enqueued, and its clock."""
    stores, changed, clock = Stores(), asyncio.Queue(), [100.0]
    stores.jobs.upsert(job(metrics={"port": rank0.port}))
    stores.pods.upsert(pod(address="127.0.0.1"))
    poller = TrainerPoller(
        stores, PublishedControls(), changed.put_nowait, 0.01, 1.0, "operator-1", now=lambda: clock[0]
    )
    task = asyncio.create_task(poller.work())
    poller.queue.add(KEY)
    yield poller, stores, changed, clock
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def asked(rank0, more=2):
    """Wait until the rank was asked so many times more."""
    wanted = len(rank0.headers) + more
    async with asyncio.timeout(10):
        while len(rank0.headers) < wanted:
            await asyncio.sleep(0.005)


async def test_only_a_changed_answer_enqueues_the_job_and_every_poll_renews_the_lease(rank0, polled):
    poller, _, changed, _ = polled
    assert await asyncio.wait_for(changed.get(), 10) == KEY
    await asked(rank0, 3)
    assert changed.empty()
    assert poller.report(KEY).status.iteration == 7
    assert set(rank0.headers) == {"operator-1"}
    rank0.answer = lambda: web.Response(text=DOCUMENT.replace("7,", "8,"))
    assert await asyncio.wait_for(changed.get(), 10) == KEY
    assert poller.report(KEY).status.iteration == 8


async def test_failures_of_every_kind_count_from_the_first_one(rank0, polled):
    poller, _, changed, clock = polled
    await asyncio.wait_for(changed.get(), 10)
    for answer, failure, at in (({"status": 500}, "HttpError", 200.0), ({"text": "nothing"}, "Malformed", 300.0)):
        clock[0] = at
        rank0.answer = lambda answer=answer: web.Response(**answer)
        await asyncio.wait_for(changed.get(), 10)
        report = poller.report(KEY)
        assert (report.status, report.failure, report.since) == (None, failure, 200.0)


async def test_another_text_of_the_same_failure_is_kept_without_enqueueing_the_job(rank0, polled):
    poller, _, changed, _ = polled
    rank0.answer = lambda: web.Response(status=500)
    while poller.report(KEY) is None or poller.report(KEY).failure != "HttpError":
        await asyncio.wait_for(changed.get(), 10)
    rank0.answer = lambda: web.Response(status=503)
    await asked(rank0, 3)
    assert poller.report(KEY).error == "HTTP 503"
    assert changed.empty()


async def test_reports_of_an_earlier_pod_are_dropped(rank0, polled):
    poller, stores, changed, _ = polled
    await asyncio.wait_for(changed.get(), 10)
    stores.pods.drop(pod())
    assert poller.report(KEY) is None
    stores.pods.upsert(pod(address="127.0.0.1", uid="next"))
    assert poller.report(KEY) is None
    poller.queue.add(KEY)
    async with asyncio.timeout(10):
        while poller.report(KEY) is None:
            await changed.get()


def control(generation):
    return Effective(ControlDocument(generation=generation), Governing(), JobInjections((), {}))


@pytest.mark.parametrize(
    ("generation", "answer", "often"),
    [
        (5, {"appliedGeneration": 4}, True),
        (5, {"appliedGeneration": 5}, False),
        (5, {"appliedGeneration": 4, "state": "starting"}, False),
        (5, {"appliedGeneration": 4, "controlError": "control.json: is not JSON"}, False),  # it would not help
        (None, {}, False),
    ],
    ids=str,
)
async def test_ranks_that_are_behind_are_polled_often(rank0, generation, answer, often):
    stores = Stores()
    stores.jobs.upsert(job(metrics={"port": rank0.port}))
    published = PublishedControls()
    if generation is not None:
        published.record(KEY, control(generation))
    stores.pods.upsert(pod(address="127.0.0.1"))
    rank0.answer = lambda: web.Response(text=json.dumps({**json.loads(DOCUMENT), **answer}))
    poller = TrainerPoller(stores, published, lambda key: None, 100.0, 1.0, "operator-1")
    waits = []
    poller.queue.add_after = lambda key, seconds: waits.append(seconds)
    async with aiohttp.ClientSession() as http:
        await poller._poll(http, KEY)
    assert len(waits) == 1
    assert (waits[0] < 2) is often
