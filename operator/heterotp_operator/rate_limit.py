"""How many calls per second the API server gets, and whose call is the next.

Calls that must wait are let through in rotation by namespace: what one namespace costs delays no other one.
"""

import asyncio
import itertools
import time
from collections.abc import Callable

from heterotp_operator.fair_turns import FairTurns, Key


class TokenBucket:
    """`rate` tokens per second, at most twice as many kept."""

    def __init__(self, rate: float, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._now = rate, now
        self._tokens, self._filled = 2 * rate, now()

    def take(self) -> float:
        """Take a token and return 0; without one return the seconds until there is one."""
        now = self._now()
        self._tokens = min(2 * self._rate, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if self._tokens < 1:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0


class FairLimit:
    """Lets calls through as a bucket has tokens for them, in turns by namespace."""

    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket
        self._turns = FairTurns()
        self._waiting: dict[Key, asyncio.Future[None]] = {}
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, namespace: str) -> None:
        """Return when the next call of a namespace may begin; the operator's own calls are a namespace of their own."""
        if not self._waiting and not self._bucket.take():
            return
        key = namespace, str(next(self._numbers))
        self._waiting[key] = asyncio.get_running_loop().create_future()
        self._turns.add(key)
        if self._timer is None:
            self._let_through()
        await self._waiting[key]

    def _let_through(self) -> None:
        """Let those through for whom there are tokens, and come back for the others."""
        self._timer = None
        while self._waiting:
            if delay := self._bucket.take():
                self._timer = asyncio.get_running_loop().call_later(delay, self._let_through)
                return
            if (caller := self._next()) is not None:
                caller.set_result(None)

    def _next(self) -> "asyncio.Future[None] | None":
        """Return whose turn it is; None: those that waited have given up."""
        while (key := self._turns.take()) is not None:
            self._turns.done(key)
            caller = self._waiting.pop(key)
            if not caller.done():
                return caller
        return None
