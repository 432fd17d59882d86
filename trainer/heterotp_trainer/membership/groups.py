"""Process groups that can be left and made anew, without the ranks that are gone.

A `Generation` is one formation of the gang. Its groups are `LeavableGroup`s: torch.distributed takes them as any other
group, but nobody blocks inside of a collective: every wait is for "done or given up". A group that was left is kept for
ever: to destroy it would wait for its threads, which wait for ranks that are gone.

`make_group` is the one place that knows the backend; gloo is the only one so far.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from heterotp_trainer.membership.errors import GoneError

T = TypeVar("T")
_abandoned: list[object] = []  # groups and stores that were left


class Generation:
    """One formation of the gang; members: origins, by rank. Once given up it stays so."""

    def __init__(self, number: int, members: tuple[int, ...]) -> None:
        self.number, self.members = number, members
        self.why = ""  # it was given up; empty: it was not
        self._waiting: set[threading.Event] = set()
        self._held: list[object] = []

    def give_up(self, why: str) -> None:
        """Have every wait of this generation raise GoneError, now and from now on; called by any thread."""
        self.why = self.why or why
        for event in list(self._waiting):
            event.set()

    def check(self) -> None:
        """Raise GoneError where the generation was given up."""
        if self.why:
            raise GoneError(self.why)

    def until(self, begin: Callable[[Callable[[], None]], object], done: Callable[[], bool]) -> None:
        """Wait until `begin`'s argument is called or the generation is given up; raise GoneError if it is not done."""
        event = threading.Event()
        self._waiting.add(event)
        try:
            begin(event.set)
            if not self.why:
                event.wait()
        finally:
            self._waiting.discard(event)
        if not done():
            self.check()

    def in_thread(self, act: Callable[[], T]) -> T:
        """Return what act() returns; where the generation is given up meanwhile, leave it to its thread and raise."""
        found: list[T] = []
        failed: list[BaseException] = []

        def run(over: Callable[[], None]) -> None:
            try:
                found.append(act())
            except BaseException as error:  # raised by the thread that waits
                failed.append(error)
            over()

        def begin(over: Callable[[], None]) -> None:
            threading.Thread(target=run, args=(over,), name="abandonable", daemon=True).start()

        self.check()
        self.until(begin, lambda: bool(found or failed))
        if failed:
            raise failed[0]
        return found[0]

    def hold(self, thing: object) -> None:
        """Keep a store or group for as long as the generation lives."""
        self._held.append(thing)

    def leave(self) -> None:
        """Give up the generation and forget its groups."""
        self.give_up("the generation was left")
        for each in self._held:
            if isinstance(each, LeavableGroup):
                each.forget()
        _abandoned.extend(self._held)


def left_any() -> bool:
    """Return whether this process has left a group: it must end by force, since threads may still wait in there."""
    return bool(_abandoned)


class Awaited:
    """A collective under way; `wait` raises GoneError where the generation is given up first, or a peer is gone."""

    def __init__(self, work: dist.Work, generation: Generation, *, has_future: bool) -> None:
        self._work, self._generation, self._has_future = work, generation, has_future

    def is_completed(self) -> bool:
        """Return whether it is done, or has failed."""
        return bool(self._work.is_completed())

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for it."""
        try:
            if not self._has_future:  # point to point: torch's works of gloo cannot tell that they are done
                self._generation.in_thread(self._work.wait)
                return True
            if not self._work.is_completed():
                future = self._work.get_future()
                self._generation.until(
                    lambda over: future.add_done_callback(lambda _: over()), lambda: bool(self._work.is_completed())
                )
            self._work.wait()
        except GoneError:
            raise
        except RuntimeError as error:  # of the backend: a broken connection
            self._generation.give_up(str(error).partition("\n")[0])
            self._generation.check()
        return True


class LeavableGroup(dist.ProcessGroup):
    """A process group of one generation; torch.distributed's functions call what it overrides."""

    def __init__(self, inner: Any, generation: Generation, rank: int, ranks: int, store: Store, backend: str) -> None:
        super().__init__(rank, ranks)
        self._inner, self._generation = inner, generation
        # what torch.distributed's functions look up of a group
        c10d._world.pg_map[self] = (backend, store)
        c10d._world.pg_group_ranks[self] = {each: each for each in range(ranks)}
        generation.hold(self)
        generation.hold(inner)

    def forget(self) -> None:
        """Remove what torch.distributed knows of the group."""
        c10d._world.pg_map.pop(self, None)
        c10d._world.pg_group_ranks.pop(self, None)

    def _get_backend(self, device: object) -> Any:
        return self

    def _begin(self, name: str, *arguments: Any, has_future: bool = True) -> Awaited:
        self._generation.check()
        try:
            work = getattr(self._inner, name)(*arguments)
        except RuntimeError as error:  # the connection broke before
            self._generation.give_up(str(error).partition("\n")[0])
            self._generation.check()
            raise
        return Awaited(work, self._generation, has_future=has_future)

    def allreduce(self, tensors: Any, opts: Any = None) -> Awaited:  # type: ignore[override]
        """See torch.distributed.all_reduce."""
        return self._begin("allreduce", tensors, opts or c10d.AllreduceOptions())

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Awaited:  # type: ignore[override]
        """See torch.distributed.all_gather."""
        options = opts or c10d.AllgatherOptions()  # type: ignore[attr-defined]
        return self._begin("allgather", outputs, inputs, options)

    def broadcast(self, tensors: Any, opts: Any = None) -> Awaited:  # type: ignore[override]
        """See torch.distributed.broadcast."""
        return self._begin("broadcast", tensors, opts or c10d.BroadcastOptions())

    def reduce(self, tensors: Any, opts: Any = None) -> Awaited:  # type: ignore[override]
        """See torch.distributed.reduce."""
        return self._begin("reduce", tensors, opts or c10d.ReduceOptions())

    def barrier(self, opts: Any = None) -> Awaited:  # type: ignore[override]
        """See torch.distributed.barrier."""
        return self._begin("barrier", opts or c10d.BarrierOptions())

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Awaited:  # type: ignore[override]
        """See torch.distributed.isend."""
        return self._begin("send", tensors, dst, tag, has_future=False)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Awaited:  # type: ignore[override]
        """See torch.distributed.irecv."""
        return self._begin("recv", tensors, src, tag, has_future=False)


def make_group(generation: Generation, store: Store, name: str, rank: int, timeout: timedelta) -> LeavableGroup:
    """Return a group of this generation's members, which meet in a store under a name (all of them).

    Raises GoneError where the generation is given up before all have come.
    """
    ranks, named = len(generation.members), PrefixStore(name, store)
    generation.hold(store)
    try:
        inner = generation.in_thread(lambda: dist.ProcessGroupGloo(named, rank, ranks, timeout=timeout))
    except RuntimeError as error:
        if isinstance(error, GoneError):
            raise
        with suppress(GoneError):
            generation.give_up(str(error).partition("\n")[0])
        raise GoneError(generation.why) from None
    return LeavableGroup(inner, generation, rank, ranks, named, "gloo")
