"""Asks the ranks 0 of all jobs, and keeps what makes the next poll of each cheap: a connection and a known document.

A first request has a connection of its own, and any server may answer it. Who gives its document a token shows to be
a trainer that can be asked again on one connection: by the token for a while, then for the whole document. After
any failure, and for another pod, all begins anew; a pod whose answer on a kept connection could not be used gets no
other one. A connection is one job's and one pod's; there are bounds on how many there are and how old they get, and
each holds bytes only while it is asked.
"""

import asyncio
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

from heterotp_api.trainer_news import WHOLE_SECONDS
from heterotp_api.trainer_status import MOST_BYTES, TrainerStatus

from heterotp_operator.bounded_request import UnansweredError, UnusableAnswerError, fetch, request_of
from heterotp_operator.kept_connection import GoneError, Head, KeptConnection
from heterotp_operator.poll_answer import BAD, Answer, understood_kept, understood_soon
from heterotp_operator.poll_target import Target
from heterotp_operator.queue import Key

PATH = "/status"
MOST_KEPT = 4096  # connections: jobs beyond are asked by a new one each time
MOST_AGE_SECONDS = 600.0


@dataclass
class _Known:
    """The last whole document of a pod's rank 0, and the connection to it."""

    where: Target
    token: str
    status: TrainerStatus
    since: float
    moved_at: float
    place: tuple[int, int] = (-1, -1)
    connection: KeptConnection | None = None
    opened_at: float = 0.0

    def saw(self, status: TrainerStatus, now: float) -> None:
        """Note how far the rank has come."""
        if (place := (status.epoch, status.iteration)) != self.place:
            self.place, self.moved_at = place, now

    def is_current(self, now: float, refresh: float) -> bool:
        """Return whether to ask for news alone; of a rank that stands still all is asked for, because it may hang."""
        return now - self.since < refresh and now - self.moved_at < WHOLE_SECONDS

    def close(self) -> None:
        if self.connection is not None:
            self.connection.abort()
        self.connection = None


class RankClient:
    """One request to a job's rank 0 at a time."""

    def __init__(self, now: Callable[[], float] = time.monotonic, most_kept: int | None = None) -> None:
        """now: seconds that never go back. most_kept: by default what the process may open leaves for it."""
        self._now = now
        self._most_kept = affordable(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) if most_kept is None else most_kept
        self._known: dict[Key, _Known] = {}
        self._single: dict[Key, Target] = {}  # pods whose answers on a kept connection could not be used
        self.open: set[KeptConnection] = set()

    def forget(self, key: Key) -> None:
        """End all that is kept for a job without a running rank 0."""
        self._drop(key)
        self._single.pop(key, None)

    def _drop(self, key: Key) -> None:
        if (known := self._known.pop(key, None)) is not None:
            known.close()

    async def ask(
        self, key: Key, where: Target, headers: dict[str, str], seconds: float, refresh: float = WHOLE_SECONDS
    ) -> Answer:
        """Return rank 0's status document, or the kind of failure; at most `seconds`.

        refresh: seconds after which the whole document is asked for again, without news, too.
        """
        known = self._known.get(key)
        if known is not None and known.where != where:
            self.forget(key)
            known = None
        try:
            if known is None:
                answer = await ask_once(where, headers, seconds)
            else:
                answer = await self._ask_again(known, headers, seconds, refresh)
        except BaseException:  # a cancelled one, too: its answer may still come
            self._drop(key)
            raise
        if known is not None and self._known.get(key) is not known:  # the job was forgotten meanwhile
            known.close()
            return answer
        if known is not None and answer == BAD:
            self._single[key] = where
        self._learn(key, where, answer)
        return answer

    def _learn(self, key: Key, where: Target, answer: Answer) -> None:
        if answer.unchanged and answer.status is not None:
            self._known[key].saw(answer.status, self._now())
            return
        if answer.status is None or not answer.token or self._single.get(key) == where:
            self._drop(key)
            return
        now = self._now()
        known = self._known.setdefault(key, _Known(where, answer.token, answer.status, now, now))
        known.token, known.status, known.since = answer.token, answer.status, now
        known.saw(answer.status, now)

    async def _ask_again(self, known: _Known, headers: dict[str, str], seconds: float, refresh: float) -> Answer:
        current = known.is_current(self._now(), refresh)
        condition = {"If-None-Match": known.token} if current else {}
        request = request_of(known.where.address, known.where.port, PATH, {**headers, **condition})
        connected_before = known.connection
        try:
            async with asyncio.timeout(seconds):
                head, body = await self._exchange(known, request)
        except UnusableAnswerError:
            return BAD
        except OSError:  # TimeoutError is one; a connection that was there before shows no one in reach
            made = known.connection is not None and known.connection is not connected_before
            return Answer(None, "NoAnswer", connected=made)
        return await understood_kept(head, body, known.status if current else None)

    async def _exchange(self, known: _Known, request: bytes) -> tuple[Head, bytes]:
        """Ask on the kept connection; where it is gone, once more on a new one."""
        if known.connection is not None:
            try:
                return await self._on(known, request)
            except GoneError:
                known.close()
        loop, where = asyncio.get_running_loop(), known.where
        _, connection = await loop.create_connection(self._connection, where.address, where.port)
        known.connection, known.opened_at = connection, self._now()
        return await self._on(known, request)

    def _connection(self) -> KeptConnection:
        connection = KeptConnection(MOST_BYTES, self.open.discard)
        self.open.add(connection)
        return connection

    async def _on(self, known: _Known, request: bytes) -> tuple[Head, bytes]:
        assert known.connection is not None
        answered = await known.connection.ask(request)
        if self._now() - known.opened_at > MOST_AGE_SECONDS or len(self.open) > self._most_kept:
            known.close()
        return answered


def affordable(files: int) -> int:
    """Return how many connections may be kept by a process that may open so many files."""
    return MOST_KEPT if files == resource.RLIM_INFINITY else min(MOST_KEPT, files // 2)


async def ask_once(where: Target, headers: dict[str, str], seconds: float) -> Answer:
    """Return rank 0's status document, or the kind of failure; one request on a connection of its own."""
    try:
        received = await fetch(where.address, where.port, PATH, headers, seconds, MOST_BYTES)
    except UnansweredError:
        return Answer(None, "NoAnswer", connected=True)
    except OSError:  # TimeoutError is one
        return Answer(None, "NoAnswer")
    except UnusableAnswerError:
        return BAD
    return await understood_soon(received)
