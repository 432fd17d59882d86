"""Polls in turn: whose lease they renew, when a job is enqueued, and how often a rank is asked."""

import asyncio
import socket
import time

import pytest
from heterotp_api import names
from heterotp_api.control import ControlDocument
from heterotp_api.trainer_news import WHOLE_SECONDS
from heterotp_api.trainer_status import TrainerStatus
from heterotp_operator.metrics import Metrics
from heterotp_operator.poll_answer import Answer, understood
from heterotp_operator.progress_watch import CUT_OFF_SECONDS, HANGING_CONNECTIONS
from heterotp_operator.published import PublishedControls
from heterotp_operator.reconcile.control import Effective
from heterotp_operator.reconcile.gang_secret import OperatorKey
from heterotp_operator.reconcile.injections import JobInjections
from heterotp_operator.reconcile.policies import Governing
from heterotp_operator.store import Stores
from heterotp_operator.trainer_poller import NEWS_POLLS, TrainerPoller
from heterotp_trainer.boundary.lease import Lease
from heterotp_trainer.launch.door import Key as LeaseKey
from heterotp_trainer.reporting.http_server import StatusServer
from support.polled_rank import DOCUMENT, KEY, answer_of, changed_document, close_at_once, forever, job, pod

STATUS = TrainerStatus.model_validate_json(DOCUMENT)
OPERATOR_KEY = OperatorKey(bytes(range(32)))


@pytest.fixture
async def rank_with_lease():
    """Start the trainer's own server of rank 0; return its port and its lease, whose clock a test turns."""
    servers, clock = [], [100.0]

    def start(secret):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        lease = Lease(LeaseKey(secret, "j", 2), now=lambda: clock[0])
        servers.append(StatusServer(port, lambda: STATUS, None, lease.polled, host="127.0.0.1"))
        servers[-1].start()
        return port, lease, clock

    yield start
    for server in servers:
        await asyncio.to_thread(server.stop)


def poller_of(port, key=OPERATOR_KEY):
    """Return the poller of an operator that was started now, and the pauses after its polls."""
    stores, pauses = Stores(), []
    stores.jobs.upsert(job(metrics={"port": port}))
    stores.pods.upsert(pod(address="127.0.0.1"))
    arguments = stores, PublishedControls(), lambda key: None, 100.0, 10.0, "operator-1", Metrics()
    poller = TrainerPoller(*arguments, key=lambda: key)
    poller.queue.add_after = lambda key, seconds: pauses.append(seconds)
    return poller, pauses


async def renews(poller, lease, clock):
    """Poll an hour later; return whether that renewed the lease."""
    clock[0] += 3600
    await poller._poll(KEY)
    assert poller.report(KEY).status.iteration == 7
    return not lease.is_over(10)


async def test_polls_renew_the_lease_from_the_second_one_on_also_after_a_restart(rank_with_lease):
    port, lease, clock = rank_with_lease(OPERATOR_KEY.secret("u", 2))
    for _ in range(2):
        poller, pauses = poller_of(port)
        assert [await renews(poller, lease, clock) for _ in range(4)] == [False, True, True, True]
        assert pauses[0] < 2 < min(pauses[1:])  # the second poll follows at once


@pytest.mark.parametrize(
    ("secret", "key", "renewed"),
    [
        (OPERATOR_KEY.secret("another", 2), OPERATOR_KEY, False),
        (OPERATOR_KEY.secret("u", 1), OPERATOR_KEY, False),
        (OPERATOR_KEY.secret("u", 2), OperatorKey(bytes(32)), False),
        (OPERATOR_KEY.secret("u", 2), None, False),
        ("", OPERATOR_KEY, True),
        ("", None, True),
    ],
    ids=["another job's", "an earlier attempt's", "another key", "an older operator", "an older gang", "both older"],
)
async def test_whose_lease_a_poll_renews(rank_with_lease, secret, key, renewed):
    port, lease, clock = rank_with_lease(secret)
    poller, _ = poller_of(port, key)
    assert [await renews(poller, lease, clock) for _ in range(3)][1:] == [renewed] * 2


@pytest.mark.parametrize("challenge", ["x" * 32, "0" * 33, "a b", "", "0" * 32])
async def test_only_a_challenge_is_signed(rank0, challenge):
    rank0.answer = answer_of(headers=[f"{names.LEASE_CHALLENGE_HEADER}: {challenge}"])
    poller, _ = poller_of(rank0.port)
    for _ in range(2):
        await poller._poll(KEY)
    signed = [names.LEASE_PROOF_HEADER in request for request in rank0.requests]
    assert signed == [False, challenge == "0" * 32]


async def test_the_challenge_of_an_earlier_pod_is_not_signed(rank0):
    rank0.answer = answer_of(headers=[f"{names.LEASE_CHALLENGE_HEADER}: {'0' * 32}"])
    poller, _ = poller_of(rank0.port)
    await poller._poll(KEY)
    poller._stores.pods.drop(pod())
    poller._stores.pods.upsert(pod(address="127.0.0.1", uid="next"))
    await poller._poll(KEY)
    assert not any(names.LEASE_PROOF_HEADER in request for request in rank0.requests)


@pytest.fixture
async def polled(rank0):
    """A poller of one job at work, the keys that it enqueued, and its clock."""
    stores, changed, clock = Stores(), asyncio.Queue(), [100.0]
    stores.jobs.upsert(job(metrics={"port": rank0.port}))
    stores.pods.upsert(pod(address="127.0.0.1"))
    poller = TrainerPoller(
        stores, PublishedControls(), changed.put_nowait, 0.01, 1.0, "operator-1", Metrics(), now=lambda: clock[0]
    )
    task = asyncio.create_task(poller.work())
    poller.queue.add(KEY)
    yield poller, stores, changed, clock
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def asked(rank0, more=2):
    """Wait until the rank was asked so many times more."""
    wanted = len(rank0.requests) + more
    async with asyncio.timeout(10):
        while len(rank0.requests) < wanted:
            await asyncio.sleep(0.005)


async def test_only_news_enqueue_the_job_at_once_and_every_poll_renews_the_lease(rank0, polled):
    poller, _, changed, _ = polled
    assert await asyncio.wait_for(changed.get(), 10) == KEY
    rank0.answer = answer_of(changed_document(iteration=8, loss=2.0))
    await asked(rank0, 3)
    assert changed.empty()
    assert poller.report(KEY).status.iteration == 8
    assert set(rank0.leases) == {"operator-1"} and len(rank0.leases) == len(rank0.requests)
    rank0.answer = answer_of(changed_document(iteration=8, appliedGeneration=2))
    assert await asyncio.wait_for(changed.get(), 10) == KEY
    assert poller.report(KEY).status.applied_generation == 2


async def test_what_is_no_news_enqueues_the_job_after_a_while(rank0, polled):
    poller, _, changed, _ = polled
    await asyncio.wait_for(changed.get(), 10)
    began = time.monotonic()
    poller._monotonic = lambda: began + WHOLE_SECONDS + 1
    await asked(rank0, 3)
    assert changed.empty(), "nothing at all is new"
    rank0.answer = answer_of(changed_document(iteration=8))
    assert await asyncio.wait_for(changed.get(), 10) == KEY
    rank0.answer = answer_of(changed_document(iteration=9))
    await asked(rank0, 3)
    assert changed.empty(), "a while after that"


async def test_failures_of_every_kind_count_from_the_first_one(rank0, polled):
    poller, _, changed, clock = polled
    await asyncio.wait_for(changed.get(), 10)
    for answer, failure, at in ((answer_of(status="500 Error"), "BadAnswer", 200.0), (b"", "NoAnswer", 300.0)):
        clock[0] = at
        rank0.answer = answer
        await asyncio.wait_for(changed.get(), 10)
        report = poller.report(KEY)
        assert (report.status, report.failure, report.since) == (None, failure, 200.0)


async def test_another_answer_that_cannot_be_used_does_not_enqueue_the_job(rank0, polled):
    poller, _, changed, _ = polled
    rank0.answer = answer_of(status="500 Error")
    while poller.report(KEY) is None or poller.report(KEY).failure != "BadAnswer":
        await asyncio.wait_for(changed.get(), 10)
    rank0.answer = answer_of("nothing")
    await asked(rank0, 3)
    assert changed.empty()


async def test_a_poll_that_raises_is_counted_and_the_others_go_on(rank0, polled):
    poller, stores, changed, _ = polled
    await asyncio.wait_for(changed.get(), 10)
    stores.jobs.upsert(
        {"metadata": {"namespace": "ns", "name": "odd", "uid": "o"}, "spec": {}, "status": {"attempt": 2}}
    )
    stores.jobs.get(("ns", "odd"))["status"] = None  # what no check foresaw
    poller.queue.add(("ns", "odd"))
    async with asyncio.timeout(10):
        while not poller._metrics.registry.get_sample_value("heterotp_operator_polls_total", {"result": "error"}):
            await asyncio.sleep(0.005)
    await asked(rank0, 3)


async def test_hung_ranks_of_one_namespace_hold_up_no_poll_of_another(serve, rank0):
    hung, stores, changed, metrics = await serve(), Stores(), asyncio.Queue(), Metrics()
    hung.answer = forever
    poller = TrainerPoller(stores, PublishedControls(), changed.put_nowait, 5.0, 60.0, "operator-1", metrics, workers=8)
    for number in range(40):
        uid, place = f"u{number}", {"namespace": "bad", "name": f"j{number}"}
        of_pod = pod(address="127.0.0.1", uid=f"p{number}", owner=uid)
        of_pod["metadata"] |= place
        of_pod["metadata"]["labels"] |= {names.LABEL_JOB: place["name"]}
        stores.jobs.upsert(job(metrics={"port": hung.port}) | {"metadata": place | {"uid": uid}})
        stores.pods.upsert(of_pod)
        poller.queue.add(("bad", place["name"]))
    stores.jobs.upsert(job(metrics={"port": rank0.port}))
    stores.pods.upsert(pod(address="127.0.0.1"))
    workers = [asyncio.create_task(poller.work()) for _ in range(8)]
    await asked(hung, 4)
    poller.queue.add(KEY)
    assert await asyncio.wait_for(changed.get(), 30) == KEY
    assert len(hung.requests) == 4, "half of the workers"
    assert metrics.registry.get_sample_value("heterotp_operator_polls_total", {"result": "NoAnswer"}) is None
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


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


async def test_nothing_is_kept_of_a_job_that_is_deleted_during_its_poll(rank0):
    poller, _ = poller_of(rank0.port)

    async def answer(writer):
        poller._stores.jobs.drop(job())
        poller.forget(KEY)
        writer.write(answer_of(headers=[f'ETag: W/"{"0" * 32}"']))

    rank0.answer = answer
    await poller._poll(KEY)
    assert (poller._reports, poller._client._known, poller._shown) == ({}, {}, {})


@pytest.mark.parametrize(
    ("failures", "pauses"),
    [
        (["NoAnswer"] * 5, [5, 10, 20, 20, 20]),
        (["NoAnswer", "NoAnswer", "", "NoAnswer", "BadAnswer"], [5, 10, 5, 5, 5]),
    ],
    ids=["silent", "answers again"],
)
def test_a_rank_that_does_not_answer_is_polled_less_often(failures, pauses):
    poller = TrainerPoller(Stores(), PublishedControls(), lambda key: None, 5.0, 1.0, "operator-1", Metrics())
    assert [poller._pause(KEY, "p", Answer(None, failure)) for failure in failures] == pauses


def test_ranks_that_say_for_ever_that_they_are_behind_are_polled_less_often():
    published = PublishedControls()
    published.record(KEY, control(5))
    poller = TrainerPoller(Stores(), published, lambda key: None, 5.0, 1.0, "operator-1", Metrics())
    behind = Answer(TrainerStatus.model_validate_json(changed_document(appliedGeneration=4)))
    followed = Answer(TrainerStatus.model_validate_json(changed_document(appliedGeneration=5)))
    pauses = [poller._pause(KEY, "p", behind) for _ in range(NEWS_POLLS + 2000)]
    assert pauses == [1.0] * NEWS_POLLS + [2.0, 4.0] + [5.0] * 1998
    assert [poller._pause(KEY, "p", each) for each in (followed, behind)] == [5.0, 5.0], "it may say so in turns"
    published.record(KEY, control(6))
    assert [poller._pause(KEY, "p", behind), poller._pause(KEY, "another", behind)] == [1.0, 1.0]


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
    rank0.answer = answer_of(changed_document(**answer))
    poller = TrainerPoller(stores, published, lambda key: None, 100.0, 1.0, "operator-1", Metrics())
    waits = []
    poller.queue.add_after = lambda key, seconds: waits.append(seconds)
    await poller._poll(KEY)
    assert len(waits) == 1
    assert (waits[0] < 2) is often


async def test_a_rank_that_accepts_connections_and_answers_none_is_not_out_of_reach(rank0, polled):
    """Beside another job that is silent, too: neither lets the other one wait."""
    poller, _, changed, _ = polled
    await asyncio.wait_for(changed.get(), 10)
    poller._watch.answered(("ns", "other"), "q", understood(answer_of()).status)
    rank0.answer = close_at_once
    async with asyncio.timeout(30):
        while poller._watch._seen[KEY].unanswered < HANGING_CONNECTIONS:
            poller.queue.add(KEY)
            await asyncio.sleep(0.01)
    now = time.monotonic()
    poller._watch._now = lambda: now + 10 * CUT_OFF_SECONDS
    assert poller.progress(KEY).cut_off is False
    assert poller._watch.of(("ns", "other"), "q").cut_off is True


async def test_only_another_place_of_rank_0_is_polled_at_once(rank0):
    poller, _ = poller_of(rank0.port)
    poller.look(KEY)
    assert poller.queue.take() == KEY, "never polled before"
    poller.queue.done(KEY)
    await poller._poll(KEY)
    asked = len(poller.queue)
    poller.look(KEY)
    assert len(poller.queue) == asked, "an event of another pod, or of the job's status"
    poller._stores.pods.drop(pod())
    poller._stores.pods.upsert(pod(address="127.0.0.1", uid="next"))
    poller.look(KEY)
    assert poller.queue.take() == KEY
