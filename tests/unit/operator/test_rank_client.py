"""Polls on a kept connection: when it is used, by whom, and what a hostile peer can do with it."""

import asyncio
import json
import resource
from contextlib import closing, suppress

import pytest
from heterotp_api.trainer_news import PLACE_HEADER, WHOLE_SECONDS
from heterotp_operator import rank_client
from heterotp_operator.kept_connection import MOST_HEAD_BYTES, MOST_HEADERS
from heterotp_operator.poll_answer import BAD, Answer
from heterotp_operator.poll_target import Target
from heterotp_operator.rank_client import MOST_AGE_SECONDS, MOST_KEPT, RankClient, affordable
from support.polled_rank import DOCUMENT, KEY, answer_of, changed_document, forever

TOKEN, OTHER = f'W/"{"0" * 32}"', f'W/"{"1" * 32}"'
WHOLE = answer_of(headers=[f"ETag: {TOKEN}"])
NEWER = answer_of(changed_document(iteration=8), headers=[f"ETag: {OTHER}"])


def unchanged(*headers):
    return "\r\n".join(["HTTP/1.1 304 Not Modified", f"ETag: {TOKEN}", *headers, "", ""]).encode()


class Rank:
    """A server that answers the requests of all connections by a script, the last entry again and again."""

    def __init__(self):
        self.answers = [WHOLE]
        self.requests = []  # (number of the connection, text)
        self.connections = 0
        self.open = set()

    async def handle(self, reader, writer):
        self.open.add(asyncio.current_task())
        with closing(writer.transport):
            await self.serve(reader, writer)

    async def serve(self, reader, writer):
        number = self.connections = self.connections + 1
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.requests.append((number, request))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if callable(answer):
                    await answer(writer)
                else:
                    writer.write(answer)
                    await writer.drain()
                if "Connection: close" in request:
                    break

    @property
    def numbers(self):
        return [number for number, _ in self.requests]

    @property
    def named(self):
        """Return the token that each request named."""
        lines = ([line for line in text.split("\r\n") if line.startswith("If-None-Match")] for _, text in self.requests)
        return [each[0].partition(": ")[2] if each else None for each in lines]


@pytest.fixture
async def rank():
    found = Rank()
    server = await asyncio.start_server(found.handle, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()
    for task in found.open:
        task.cancel()
    await asyncio.gather(*found.open, return_exceptions=True)
    await asyncio.sleep(0)  # in which the transports end


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
async def client(clock):
    found = RankClient(lambda: clock[0])
    yield found
    for key in list(found._known):
        found.forget(key)
    await ended(found, 0)


async def ended(client, left):
    """Wait until no more than so many connections are open."""
    async with asyncio.timeout(10):
        while len(client.open) > left:
            await asyncio.sleep(0.005)


async def asked(client, rank, key=KEY, pod="p", seconds=10.0, refresh=WHOLE_SECONDS):
    return await client.ask(key, Target(pod, "127.0.0.1", rank.port), {"X": "1"}, seconds, refresh)


async def test_a_trainer_that_gives_a_token_is_asked_by_it_on_one_connection(client, rank):
    rank.answers = [WHOLE, unchanged(f"{PLACE_HEADER}: 3.9"), unchanged(), NEWER, unchanged()]
    answers = [await asked(client, rank) for _ in range(5)]
    assert [each.unchanged for each in answers] == [False, True, True, False, True]
    assert [(each.status.epoch, each.status.iteration) for each in answers] == [(0, 7), (3, 9), (0, 7), (0, 8), (0, 8)]
    assert rank.numbers == [1, 2, 2, 2, 2]
    assert rank.named == [None, TOKEN, TOKEN, TOKEN, OTHER]


async def test_a_server_without_tokens_is_asked_by_one_connection_each(client, rank):
    rank.answers = [answer_of()]
    assert [(await asked(client, rank)).status.iteration for _ in range(3)] == [7, 7, 7]
    assert (rank.numbers, rank.named, len(client.open)) == ([1, 2, 3], [None] * 3, 0)
    assert all("Connection: close" in text for _, text in rank.requests)


@pytest.mark.parametrize("token", ["x", "0" * 32, 'W/""', f'W/"{"0" * 33}"', f'"{"0" * 32}"', "W/" + '"' * 500])
async def test_what_is_no_token_is_not_sent_back(client, rank, token):
    rank.answers = [answer_of(headers=[f"ETag: {token}"])]
    await asked(client, rank)
    await asked(client, rank)
    assert rank.named == [None, None]


async def test_a_rank_that_says_for_ever_that_nothing_is_new_is_asked_for_the_whole_then(client, rank, clock):
    rank.answers = [WHOLE, unchanged()]
    for _ in range(3):
        assert (await asked(client, rank)).status is not None
    clock[0] += WHOLE_SECONDS
    assert await asked(client, rank) == BAD, "nobody named a document"
    assert rank.named[-1] is None
    await ended(client, 0)


async def test_among_many_jobs_the_whole_is_asked_for_less_often_but_of_a_rank_that_stands_still(client, rank, clock):
    rank.answers = [WHOLE, unchanged(f"{PLACE_HEADER}: 0.8"), unchanged(f"{PLACE_HEADER}: 0.9")]
    for _ in range(2):
        await asked(client, rank, refresh=62.5)
        clock[0] += WHOLE_SECONDS - 1
    await asked(client, rank, refresh=62.5)
    assert rank.named == [None, TOKEN, TOKEN]
    clock[0] += WHOLE_SECONDS
    await asked(client, rank, refresh=62.5)
    assert rank.named[-1] is None


async def test_of_a_rank_that_stands_still_the_whole_is_asked_at_every_poll(client, rank, clock):
    rank.answers = [WHOLE]
    for _ in range(2 * int(WHOLE_SECONDS) // 5):
        assert (await asked(client, rank)).status.iteration == 7
        clock[0] += 5.0
    late = int(WHOLE_SECONDS) // 5
    assert (rank.named[1:late], rank.named[late:]) == ([TOKEN] * (late - 1), [None] * late)
    rank.answers = [NEWER, unchanged()]
    for _ in range(2):
        await asked(client, rank)
    assert rank.named[-2:] == [None, OTHER], "it goes on"


async def test_an_unchanged_place_is_that_of_the_document(client, rank):
    for text in ("", "1", "1.2.3", "-1.5", "9" * 17 + ".1", "99999999999999999.1", "9999999999999999.1"):
        rank.answers = [unchanged(f"{PLACE_HEADER}: {text}")] if rank.requests else [WHOLE, unchanged()]
        await asked(client, rank)
        assert (await asked(client, rank)).status.iteration == 7


async def test_no_connection_is_used_for_another_pod_or_another_job(client, rank):
    for key, pod in ((KEY, "p"), (KEY, "p"), (("ns", "other"), "p"), (("ns", "other"), "p"), (KEY, "q"), (KEY, "q")):
        await asked(client, rank, key, pod)
    assert rank.numbers == [1, 2, 3, 4, 5, 6]
    assert rank.named == [None, TOKEN, None, TOKEN, None, TOKEN]
    await ended(client, 2)


async def test_a_connection_that_the_peer_has_closed_is_made_anew_within_the_poll(client, rank):
    async def answer_and_close(writer):
        writer.write(unchanged())
        await writer.drain()
        writer.transport.close()

    rank.answers = [WHOLE, answer_and_close, unchanged()]
    assert all([(await asked(client, rank)).status is not None for _ in range(4)])
    assert rank.numbers == [1, 2, 3, 3]


async def test_an_answer_that_is_cut_off_is_not_asked_for_again(client, rank):
    async def half(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.transport.close()

    rank.answers = [WHOLE, unchanged(), half]
    answers = [await asked(client, rank) for _ in range(3)]
    assert answers[2] == Answer(None, "NoAnswer")
    assert rank.numbers == [1, 2, 2]


async def drops(writer):
    while True:
        writer.write(b"H")
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("answer", [forever, drops])
async def test_a_kept_connection_without_an_answer_shows_no_node_in_reach_and_ends(client, rank, answer):
    rank.answers = [WHOLE, answer]
    await asked(client, rank)
    assert await asked(client, rank, seconds=0.2) == Answer(None, "NoAnswer", connected=True), "a new one does"
    rank.answers = [WHOLE, unchanged(), answer]
    for _ in range(2):
        await asked(client, rank)
    assert await asked(client, rank, seconds=0.2) == Answer(None, "NoAnswer", connected=False)
    await ended(client, 0)


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        answer_of(status="302 Found", headers=["Location: http://127.0.0.1/"]),
        answer_of(status="500 Error"),
        answer_of("nothing"),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"\r\n" + DOCUMENT.encode(),
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        HEAD + b"Content-Length: +5\r\n\r\nhello",
        HEAD + b"Content-Length: 300000\r\n\r\n",
        HEAD + b"Content-Length: 5\r\n folded: x\r\n\r\nhello",
        HEAD + b"Content-Length: 5\r\nContent-Encoding: gzip\r\n\r\nhello",
        HEAD + b"a: b\r\n" * MOST_HEADERS + b"Content-Length: 5\r\n\r\nhello",
        HEAD + b"a: " + b"b" * MOST_HEAD_BYTES,
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,
        b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n",
        b"\x00\xff\r\n\r\n",
    ],
    ids=[
        *("redirect", "500", "no json", "chunks", "no length", "two lengths", "signed length", "too long", "folded"),
        *("packed", "headers", "long head", "1.0", "100", "bare line feeds", "ssh", "binary"),
    ],
)
async def test_an_answer_that_cannot_be_used_ends_the_connection_and_no_other_one_is_kept(client, rank, answer):
    rank.answers = [WHOLE, unchanged(), answer, WHOLE]
    answers = [await asked(client, rank) for _ in range(5)]
    assert answers[2] == BAD
    assert answers[3].status == answers[4].status and answers[4].status is not None
    assert rank.numbers == [1, 2, 2, 3, 4], "the rank is asked by one connection each"
    await ended(client, 0)


async def test_a_second_answer_behind_the_first_is_no_answer_to_the_next_poll(client, rank):
    smuggled = answer_of(changed_document(iteration=99), headers=[f"ETag: {OTHER}"])
    rank.answers = [WHOLE, NEWER + smuggled, unchanged(f"{PLACE_HEADER}: 0.12")]
    answers = [await asked(client, rank) for _ in range(3)]
    assert [each.status.iteration for each in answers] == [7, 8, 12]
    assert rank.numbers == [1, 2, 3]


async def test_bytes_between_two_polls_end_the_connection(client, rank):
    sent = []

    async def late(writer):
        writer.write(unchanged())
        await writer.drain()
        sent.append(writer)

    rank.answers = [WHOLE, late, unchanged(f"{PLACE_HEADER}: 0.12")]
    for _ in range(2):
        await asked(client, rank)
    sent[0].write(NEWER)
    await ended(client, 0)
    assert (await asked(client, rank)).status.iteration == 12
    assert rank.numbers == [1, 2, 3]


async def test_a_body_without_end_is_read_up_to_the_limit_only(client, rank):
    sent = 0

    async def endless(writer):
        nonlocal sent
        writer.write(HEAD + b"Content-Length: 200000\r\n\r\n")
        while True:
            writer.write(b" " * 65536)
            await writer.drain()
            sent += 65536

    rank.answers = [WHOLE, endless]
    await asked(client, rank)
    assert await asked(client, rank) == BAD
    await ended(client, 0)
    assert sent < 64 * rank_client.MOST_BYTES  # what the sockets of both sides hold


async def test_connections_are_bounded_in_age_and_number(client, rank, clock):
    rank.answers = [WHOLE]
    for _ in range(3):
        await asked(client, rank)
    clock[0] += MOST_AGE_SECONDS + 1
    for _ in range(2):
        await asked(client, rank)
    assert rank.numbers == [1, 2, 2, 2, 3]
    client._most_kept = 1
    for number in range(3):
        for _ in range(2):
            await asked(client, rank, ("ns", f"j{number}"))
    await ended(client, 1)
    assert (await asked(client, rank)).status.iteration == 7


@pytest.mark.parametrize(("files", "kept"), [(1024, 512), (1 << 20, MOST_KEPT), (resource.RLIM_INFINITY, MOST_KEPT)])
def test_connections_leave_half_of_the_files_to_others(files, kept):
    assert affordable(files) == kept


async def test_what_is_kept_of_a_job_ends_with_it(client, rank):
    for _ in range(2):
        await asked(client, rank)
    assert len(client.open) == 1
    client.forget(KEY)
    await ended(client, 0)
    assert not client._known


async def test_a_poll_that_is_cancelled_leaves_no_answer_behind(client, rank):
    rank.answers = [WHOLE, unchanged(), forever, WHOLE]
    for _ in range(2):
        await asked(client, rank)
    task = asyncio.create_task(asked(client, rank))
    async with asyncio.timeout(10):
        while len(rank.requests) < 3:
            await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await ended(client, 0)
    assert json.loads(DOCUMENT)["iteration"] == (await asked(client, rank)).status.iteration
    assert rank.named[-1] is None
