"""Storage, which may be slow: ranks wait for each other by short messages, never in one long collective.

| call        | rank 0                                          | the others                    |
|-------------|-------------------------------------------------|-------------------------------|
| wait        | works in a thread; says every few seconds that  | wait for the result, however  |
|             | it still does, then the result                  | long it takes                 |
| reader      | the same, for the next tensor                   | wait for its name and shape   |
| later       | lets the thread work meanwhile                  | do not call it                |
| done_by_all | works in a thread, and says so                  | the same, each for itself     |
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from heterotp_trainer.checkpoint.errors import CheckpointError, NotFiniteError, OwnerError, WriteError, storage_error
from heterotp_trainer.errors import InputError
from heterotp_trainer.launch.json_messages import broadcast_json, gather_json
from heterotp_trainer.launch.rendezvous import PeerLostError

MOST_SECONDS = 5.0  # between two messages; never more than a quarter of the collectives' timeout
LOOK_SECONDS = 1.0  # in which rank 0 shows how far it is
PACE_BYTES = 256 << 20  # of tensors, after which all ranks wait until rank 0 has written them
DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
ERRORS = {each.__name__: each for each in (CheckpointError, NotFiniteError, OwnerError, WriteError)}
T = TypeVar("T")


@dataclass(frozen=True)
class Header:
    """A whole tensor, which only rank 0 holds."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    whole: Tensor | None


Read = Callable[[], Header | None]  # the next tensor (all ranks); None at the end


@dataclass(frozen=True)
class News:
    """What rank 0 sends: a result or an error that is ready for JSON, or that it still works."""

    done: bool
    result: Any = None
    error: str = ""  # a name of ERRORS
    complaint: str = ""


@dataclass(frozen=True)
class Work:
    """How far a rank's own work is; error: the kind of exception that ended it, and what it said."""

    done: bool
    error: tuple[str, str] | None = None


@dataclass(frozen=True)
class Answer(Generic[T]):
    """A result: `said` on all ranks, `own` on rank 0."""

    said: Any
    own: T | None


class Progress:
    """How much of a checkpoint is read; written by the thread, shown by the loop."""

    def __init__(self) -> None:
        self._what, self._done, self._total = "", 0, 0
        self._lock = threading.Lock()

    def begin(self, what: str, total: int) -> None:
        """Start anew; total: bytes, 0 where they are not counted."""
        self._what, self._done, self._total = what, 0, total

    def add(self, nbytes: int) -> None:
        """Count bytes that were read; of any thread."""
        with self._lock:
            self._done += nbytes

    @property
    def text(self) -> str:
        """What is done, and how much of it, for people."""
        return f"{self._what} {100 * self._done // self._total} %" if self._total else self._what


class Storage:
    """Rank 0's thread for files, and the waiting of all ranks."""

    def __init__(
        self,
        rank: int,
        group: dist.ProcessGroup | None,
        timeout_seconds: float,
        show: Callable[[str], None] = lambda text: None,
        *,
        alone: bool = False,
    ) -> None:
        """timeout_seconds: of a collective. show: called by the training loop of rank 0 with what the thread does.

        alone: there is no other rank, and perhaps no group.
        """
        self._rank, self._group, self._show, self._alone = rank, group, show, alone
        self._every = message_seconds(timeout_seconds)
        self._thread = ThreadPoolExecutor(1, "storage") if rank == 0 else None
        self._later: list[Future[None]] = []
        self._unpaced = 0  # bytes
        self.progress = Progress()

    def close(self) -> None:
        """Give up group and thread; nothing can be waited for any more."""
        del self._group
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    def later(self, act: Callable[[], None]) -> None:
        """Do something on rank 0 after all that was asked for before; the next `wait` raises its error."""
        assert self._thread is not None
        self._later.append(self._thread.submit(act))

    def pace(self, nbytes: int) -> None:
        """Count a tensor that rank 0 writes later; wait where it has too many of them (all ranks)."""
        self._unpaced += nbytes
        if self._unpaced >= PACE_BYTES:
            self._unpaced = 0
            self.wait(lambda: None)

    def wait(self, act: Callable[[], T], described: Callable[[T], Any] = lambda result: None) -> Answer[T]:
        """Return what rank 0's thread gets from act(), after all that was asked for before (all ranks).

        described: makes of it what all ranks get, ready for JSON. Raises CheckpointError, or the one of its kinds that
        `act` raised on rank 0, on all ranks together; an OSError as `storage_error`.
        """
        if self._thread is None:
            while not (news := self._exchange(None)).done:
                pass
            if news.error:
                raise ERRORS[news.error](news.complaint)
            return Answer(news.result, None)
        future = self._thread.submit(self._after_later, act)
        self._wait(future)
        try:
            own = future.result()
        except (CheckpointError, OSError) as error:
            failure = storage_error(str(error.filename or "storage"), error) if isinstance(error, OSError) else error
            self._exchange(News(True, None, type(failure).__name__, str(failure)))
            raise failure from None
        said = described(own)
        self._exchange(News(True, said))
        return Answer(said, own)

    def reader(self, tensors: Iterator[tuple[str, Tensor]] | None) -> Read:
        """Return what reads the next tensor (all ranks), one ahead; tensors: on rank 0."""
        ahead: list[Future[tuple[str, Tensor] | None]] = []

        def read_ahead() -> None:
            assert self._thread is not None and tensors is not None
            ahead.append(self._thread.submit(next, tensors, None))

        def taken() -> tuple[str, Tensor] | None:  # by the thread, which has read it
            item = ahead.pop().result()
            read_ahead()
            return item

        def described(item: tuple[str, Tensor] | None) -> Any:
            return item and (item[0], str(item[1].dtype), list(item[1].shape))

        def read() -> Header | None:
            answer = self.wait(taken, described)
            if answer.said is None:
                return None
            name, dtype, shape = answer.said
            return Header(str(name), DTYPES[dtype], tuple(shape), answer.own[1] if answer.own is not None else None)

        if tensors is not None:
            read_ahead()
        return read

    def _after_later(self, act: Callable[[], T]) -> T:
        later, self._later = self._later, []
        for each in later:
            each.result()
        return act()

    def _wait(self, future: Future[Any]) -> None:
        """Wait for the thread; say so to the other ranks, and show how far it is."""
        said = time.monotonic()
        while not wait_for([future], min(LOOK_SECONDS, self._every)).done:
            if self.progress.text:
                self._show(self.progress.text)
            if time.monotonic() - said >= self._every:
                self._exchange(News(False))
                said = time.monotonic()

    def _exchange(self, news: News | None) -> News:
        if self._alone and news is not None:
            return news
        found: News = broadcast_json(news, News, self._rank, self._group)
        return found


def message_seconds(timeout_seconds: float) -> float:
    """Return the seconds between two messages of ranks that wait; timeout_seconds: of a collective."""
    return min(MOST_SECONDS, timeout_seconds / 4)


def done_by_all(act: Callable[[], T], ranks: int, group: dist.ProcessGroup | None, timeout_seconds: float) -> T:
    """Return what act() gets in a thread of this rank, once it is done on all ranks, however long it takes (all ranks).

    Raises what act() raised; where it did so on another rank, InputError or PeerLostError naming that rank.
    """
    if ranks == 1:
        return act()
    pool = ThreadPoolExecutor(1, "storage")
    try:
        future = pool.submit(act)
        while True:
            wait_for([future], message_seconds(timeout_seconds))
            works: list[Work] = gather_json(_work_of(future), Work, ranks, group)
            if all(work.done for work in works) or any(work.error for work in works):
                return _result(future, works)
    finally:
        pool.shutdown(wait=False)


def _work_of(future: Future[Any]) -> Work:
    if not future.done():
        return Work(False)
    error = future.exception()
    return Work(True, None if error is None else (type(error).__name__, str(error)))


def _result(future: Future[T], works: list[Work]) -> T:
    """Return what this rank's thread got, once no rank fails."""
    for rank, work in enumerate(works):
        if work.error is not None and not (future.done() and future.exception()):
            kind, said = work.error
            raise InputError(f"rank {rank}: {said}") if kind == "InputError" else PeerLostError(f"rank {rank}: {said}")
    return future.result()
