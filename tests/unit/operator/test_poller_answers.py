"""One poll of rank 0: its address, and its answers, which may be any bytes."""

import asyncio
import gzip
import socket

import pytest
from heterotp_api import names
from heterotp_api.status import MAX_RANKS
from heterotp_api.trainer_status import MOST_BYTES
from heterotp_operator.poll_answer import Answer, understood
from heterotp_operator.poll_target import Target, target
from heterotp_operator.rank_client import ask_once
from hypothesis import given
from hypothesis import strategies as st
from support.polled_rank import DOCUMENT, answer_of, changed_document, close_at_once, forever, job, pod


@pytest.mark.parametrize(
    ("pods", "address"),
    [
        ([pod()], "10.0.0.1"),
        ([pod(address="fd00::1")], "fd00::1"),
        ([pod(rank="1"), pod(attempt="1"), pod(phase="Pending"), pod(phase="Succeeded"), pod(address="")], None),
        ([], None),
        ([pod(owner=""), pod(owner="another")], None),
        ([pod(owner="another"), pod(address="10.0.0.2")], "10.0.0.2"),
        ([pod(address="metadata.internal"), pod(address="10.0.0.1/x")], None),
    ],
    ids=["v4", "v6", "none of these", "no pod", "labels alone", "a stranger and rank 0", "no address"],
)
def test_the_target_of_a_poll_is_the_running_pod_of_rank_0_that_the_job_controls(pods, address):
    found = target(job(), pods)
    assert (found and found.address) == address


@pytest.mark.parametrize(
    ("metrics", "port"),
    [({"port": 9500}, 9500), (None, 9400), ("odd", 9400), ({"port": "1"}, 9400), ({"port": 0}, 9400)],
)
def test_the_port_is_the_jobs(metrics, port):
    assert target(job(metrics=metrics), [pod()]).port == port


def test_a_deleted_job_has_no_target():
    assert target(None, [pod()]) is None


async def asked_once(rank0, seconds=10.0):
    return await ask_once(Target("p", "127.0.0.1", rank0.port), {names.LEASE_HEADER: "operator-1"}, seconds)


BOMB = gzip.compress(b" " * 10_000_000 + DOCUMENT.encode())


@pytest.mark.parametrize(
    "answer",
    [
        answer_of(status="503 Service Unavailable"),
        answer_of("nothing"),
        answer_of(changed_document(iteration="x")),
        answer_of(changed_document(schemaVersion=99)),
        answer_of(changed_document(iteration=10**40)),
        answer_of(changed_document(iteration=-1)),
        answer_of(DOCUMENT.replace("7", "9" * 5000)),
        answer_of('{"job":' * 100_000),
        answer_of(status="302 Found", headers=["Location: http://a..b/"]),
        answer_of(status="301 Moved", headers=["Location: http://[::1"]),
        answer_of(BOMB, headers=["Content-Encoding: gzip"]),
        answer_of(BOMB, headers=["Content-Encoding: br"]),
        answer_of(b"\xff\xfe" + DOCUMENT.encode("utf-16")),
        answer_of("x" * 300_000),
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n" + DOCUMENT.encode(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + DOCUMENT.encode(),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + DOCUMENT.encode(),
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 -1 \xf0\r\n\r\n",
    ],
    ids=[
        *("503", "no json", "bad field", "version", "a long number", "a negative number", "5,000 digits", "levels"),
        *("a redirect that is no address", "another one", "packed", "packed otherwise", "utf-16", "long", "ssh"),
        *("200 headers", "cut off", "bad chunk", "continue without end", "a long length", "a bad status"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_one_kind_of_failure(rank0, answer):
    rank0.answer = answer
    assert await asked_once(rank0) == Answer(None, "BadAnswer")
    assert len(rank0.requests) == 1


async def test_a_redirect_is_not_followed_and_no_other_server_is_asked(serve, rank0):
    other = await serve()
    rank0.answer = answer_of(status="302 Found", headers=[f"Location: http://127.0.0.1:{other.port}/status"])
    assert (await asked_once(rank0)).failure == "BadAnswer"
    assert (rank0.leases, other.requests) == (["operator-1"], [])


async def drop_by_drop(writer):
    while True:
        writer.write(b"H")
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("answer", [forever, drop_by_drop, close_at_once, b""])
async def test_no_answer_within_its_time_is_the_other_kind(rank0, answer):
    rank0.answer = answer
    assert await asked_once(rank0, 0.2) == Answer(None, "NoAnswer", connected=True)


async def test_a_refused_connection_is_no_answer():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        found = await ask_once(Target("p", "127.0.0.1", taken.getsockname()[1]), {}, 1.0)
    assert found == Answer(None, "NoAnswer")


async def test_a_body_without_end_is_read_up_to_the_limit_only(rank0):
    sent = 0

    async def endless(writer):
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b" " * 65536)
            await writer.drain()
            sent += 65536

    rank0.answer = endless
    assert await asked_once(rank0) == Answer(None, "BadAnswer")
    assert sent < 64 * MOST_BYTES  # what the sockets of both sides hold


async def test_a_status_of_100_000_ranks_is_refused_and_one_of_6_000_is_cut(rank0):
    rows = [{"rank": rank, "tpRank": rank, "device": "cpu"} for rank in range(100_000)]
    rank0.answer = answer_of(changed_document(ranks=rows))
    assert (await asked_once(rank0)).failure == "BadAnswer"
    rank0.answer = answer_of(changed_document(ranks=[*rows[:5000], rows[6000] | {"straggler": True}]))
    status = (await asked_once(rank0)).status
    assert len(status.ranks) == MAX_RANKS and status.ranks[0].rank == 6000


async def test_a_good_answer_is_the_document(rank0):
    found = await asked_once(rank0)
    assert (found.status.iteration, found.status.attempt, found.failure) == (7, 2, "")


async def test_a_document_in_several_chunks_is_read_completely(rank0):
    async def slowly(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(DOCUMENT), 40):
            chunk = DOCUMENT[start : start + 40].encode()
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await asyncio.sleep(0.01)
        writer.write(b"0\r\n\r\n")

    rank0.answer = slowly
    assert (await asked_once(rank0)).status.iteration == 7


@given(st.binary(max_size=400))
def test_no_bytes_raise(received):
    assert understood(received).failure == "BadAnswer"


@given(st.binary(max_size=200), st.sampled_from(["Content-Length: ", "Transfer-Encoding: ", "Content-Encoding: ", "a"]))
def test_no_header_raises(value, header):
    received = b"HTTP/1.1 200 OK\r\n" + header.encode() + value + b"\r\n\r\n" + DOCUMENT.encode()
    assert understood(received).failure in ("", "BadAnswer")
