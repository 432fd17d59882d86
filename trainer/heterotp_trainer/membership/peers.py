"""Connections of each rank to each other one, beside the collectives: they show who is lost, and carry the news of it.

A killed process closes its connections at once; a stopped or cut-off one misses heartbeats. Each message is one line of
JSON. A connection is accepted with the gang's token only, which its members exchanged over their proven group.
"""

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter, ValidationError

from heterotp_trainer.membership.errors import AloneError
from heterotp_trainer.membership.groups import Generation
from heterotp_trainer.membership.survivors import Left

SEND_SECONDS = 2.0  # for which a full connection is waited for: its reader does not run
CONNECT_SECONDS = 30.0
MOST_BYTES = 16 << 20  # of a message
BEATS = 5  # heartbeats within the time after which a silent rank counts as lost


@dataclass(frozen=True)
class Decision:
    """The next generation, as the lowest live rank decided it.

    members: origins, by rank. host, port, prefix: of the store that they meet in. lefts: what they said; speeds: of
    the ranks before, relative, as that rank knows them; empty: all alike.
    """

    generation: int
    members: tuple[int, ...]
    host: str
    port: int
    prefix: str
    lefts: tuple[Left, ...]
    speeds: tuple[float, ...] = ()


_LEFT, _DECISION = TypeAdapter(Left), TypeAdapter(Decision)


class Peers:
    """This rank's connections, by origin. All methods but `close` may be called by any thread."""

    def __init__(self, origin: int, host: str, sockets: Mapping[int, socket.socket], silent_seconds: float) -> None:
        """host: where this rank can be reached. silent_seconds: after which a silent rank counts as lost."""
        self.origin, self.host = origin, host
        self.dead: dict[int, str] = {}  # why, by origin
        self.lefts: dict[int, Left] = {}  # the newest of each other rank
        self.decision: Decision | None = None  # the newest of another rank
        self._sockets, self._silent = dict(sockets), silent_seconds
        self._ended_well: set[int] = set()
        self._heard = dict.fromkeys(sockets, time.monotonic())
        self._partial = dict.fromkeys(sockets, b"")
        self._sending = {rank: threading.Lock() for rank in sockets}
        self._changed = threading.Condition()
        self._unread: list[tuple[int, socket.socket]] = []  # connections that the thread does not read yet
        self._generation: Generation | None = None
        self._counts: Mapping[int, int] = {}  # what members had said when the generation was decided
        self._over = threading.Event()
        for rank, each in sockets.items():
            each.settimeout(SEND_SECONDS)
            self._unread.append((rank, each))
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)
        self._thread.start()

    def admit(self, rank: int, connection: socket.socket) -> None:
        """Take a rank that comes back as one that lives, with a connection to it."""
        connection.settimeout(SEND_SECONDS)
        with self._changed:
            if (earlier := self._sockets.get(rank)) is not None:
                earlier.close()
            self._sockets[rank], self._sending[rank] = connection, threading.Lock()
            self._heard[rank], self._partial[rank] = time.monotonic(), b""
            self._counts = {other: count for other, count in self._counts.items() if other != rank}
            self._ended_well.discard(rank)
            self.lefts.pop(rank, None)
            self.dead.pop(rank, None)
            self._unread.append((rank, connection))

    def let_go(self, rank: int, why: str) -> None:
        """Count a rank as lost that leaves because it was asked to; it closes its connections itself."""
        with self._changed:
            self.dead[rank] = why
            self._changed.notify_all()

    @property
    def counts(self) -> Mapping[int, int]:
        """What the members had said when the generation was decided: `Left.number` by origin."""
        return self._counts

    def follow(self, generation: Generation, counts: Mapping[int, int]) -> None:
        """Give up this generation once a member is lost, or says something new. counts: `Left.number` by origin."""
        with self._changed:
            self._generation, self._counts = generation, dict(counts)
        self._judge()

    def say(self, left: Left) -> None:
        """Tell all live ranks that this one has given up its generation."""
        self._tell_all({"left": asdict(left)})

    def decide(self, decision: Decision) -> None:
        """Tell the members of the next generation about it."""
        for rank in decision.members:
            self._tell(rank, {"decided": asdict(decision)})

    def wait(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition of what is known here holds; return whether it does."""
        with self._changed:
            return self._changed.wait_for(holds, seconds)

    def said_since(self, rank: int) -> Left | None:
        """Return what another rank has said since the generation was decided; None: nothing."""
        left = self.lefts.get(rank)
        return left if left is not None and left.number > self._counts.get(rank, 0) else None

    def close(self) -> None:
        """Tell the others that this rank ends well, and close all connections."""
        self._tell_all({"ended": True})
        self._over.set()
        self._thread.join(SEND_SECONDS)
        for each in self._sockets.values():
            each.close()

    # -- sending ------------------------------------------------------------------------------------------

    def _tell_all(self, message: Mapping[str, object]) -> None:
        for rank in list(self._sockets):
            self._tell(rank, message)

    def _tell(self, rank: int, message: Mapping[str, object]) -> None:
        if rank == self.origin or rank in self.dead or rank in self._ended_well:
            return
        try:
            with self._sending[rank]:
                self._sockets[rank].sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            self._lost(rank, f"cannot be reached: {error}")

    # -- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        every = self._silent / BEATS
        with selectors.DefaultSelector() as selector:
            beat = time.monotonic()
            while not self._over.is_set():
                while self._unread:
                    rank, each = self._unread.pop()
                    selector.register(each, selectors.EVENT_READ, (rank, each))
                for key, _ in selector.select(max(0.0, min(0.2, beat + every - time.monotonic()))):
                    rank, each = key.data
                    if self._sockets[rank] is not each or not self._read(rank):
                        selector.unregister(each)
                if time.monotonic() >= beat + every:
                    beat = time.monotonic()
                    self._tell_all({})
                self._look_for_silence()

    def _look_for_silence(self) -> None:
        now = time.monotonic()
        for rank, heard in list(self._heard.items()):
            if now - heard > self._silent and rank not in self.dead and rank not in self._ended_well:
                self._lost(rank, f"was silent for {now - heard:.0f} s")

    def _read(self, rank: int) -> bool:
        """Take what has arrived; return whether more may come."""
        try:
            data = self._sockets[rank].recv(1 << 16)
        except TimeoutError:
            return True
        except OSError as error:
            data, why = b"", f"closed its connection: {error}"
        else:
            why = "closed its connection"
        if not data:
            self._lost(rank, why)
            return False
        self._heard[rank] = time.monotonic()
        *lines, self._partial[rank] = (self._partial[rank] + data).split(b"\n")
        try:
            if len(self._partial[rank]) > MOST_BYTES:
                raise ValueError("too long")
            for line in lines:
                self._take(rank, json.loads(line))
        except (ValueError, ValidationError):
            self._lost(rank, "sent what is no message")
            return False
        return True

    def _take(self, rank: int, message: object) -> None:
        if not isinstance(message, dict) or not message:  # a heartbeat
            return
        if rank in self.dead:  # it has no say any more: what it takes for lost is what has let it go
            return
        with self._changed:
            if "left" in message:
                left = _LEFT.validate_python(message["left"])
                if left.rank == rank:
                    self.lefts[rank] = left
            elif "decided" in message:
                self.decision = _DECISION.validate_python(message["decided"])
            elif "ended" in message:
                self._ended_well.add(rank)
            self._changed.notify_all()
        for other in self.lefts[rank].dead if "left" in message and rank in self.lefts else ():
            if other != self.origin:
                self._lost(other, f"is lost, as rank {rank} says")
        self._judge()

    def _lost(self, rank: int, why: str) -> None:
        """Count a rank as lost, once; a rank that ended well closes its connection, too."""
        with self._changed:
            if rank in self.dead or rank not in self._sockets:
                return
            self.dead[rank] = why
            self._changed.notify_all()
        with suppress(OSError):  # it must see that the others go on without it, also where it runs again
            self._sockets[rank].shutdown(socket.SHUT_RDWR)
        self._judge()

    def _judge(self) -> None:
        """Give up the generation where a member is lost, or has given it up."""
        generation = self._generation
        if generation is None or self._over.is_set():
            return
        for rank in generation.members:
            if rank in self.dead and rank not in self._ended_well:
                generation.give_up(f"rank {rank} {self.dead[rank]}")
            elif self.said_since(rank) is not None:
                generation.give_up(f"rank {rank} has left generation {generation.number}")


# -- how they are connected -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Address:
    """Where a rank takes connections, and with which token; node: the name of its machine."""

    host: str
    port: int
    token: str
    node: str


def listen(host: str) -> socket.socket:
    """Return a socket that listens on a free port."""
    return socket.create_server((host, 0))


def connect(origin: int, listener: socket.socket, addresses: Sequence[Address]) -> dict[int, socket.socket]:
    """Return a connection to each other rank: made to the lower ones, taken from the higher ones (all ranks).

    Raises AloneError where one does not come in time.
    """
    token, found = addresses[0].token, {}
    for rank in range(origin):
        found[rank] = reach(addresses[rank].host, addresses[rank].port, token, origin, CONNECT_SECONDS)
    return found | taken_from(listener, token, range(origin + 1, len(addresses)))


def reach(host: str, port: int, token: str, origin: int, seconds: float) -> socket.socket:
    """Return a connection to a rank that listens there, after telling it who this is; raises OSError."""
    made = socket.create_connection((host, port), seconds)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.sendall(json.dumps([token, origin]).encode() + b"\n")
    return made


def taken_from(listener: socket.socket, token: str, expected: Collection[int]) -> dict[int, socket.socket]:
    """Return a connection from each of these ranks; raises AloneError where one does not come in time."""
    found: dict[int, socket.socket] = {}
    deadline = time.monotonic() + CONNECT_SECONDS
    while len(found) < len(expected):
        listener.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            taken, _ = listener.accept()
        except TimeoutError:
            missing = sorted(set(expected) - set(found))
            raise AloneError(f"ranks {missing} made no connection within {CONNECT_SECONDS:.0f} s") from None
        other = _introduced(taken, token, expected)
        if other is None or other in found:
            taken.close()
        else:
            found[other] = taken
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def _introduced(taken: socket.socket, token: str, expected: Collection[int]) -> int | None:
    """Return the rank at the other end; None for a stranger."""
    deadline, line = time.monotonic() + SEND_SECONDS, b""
    try:
        while not line.endswith(b"\n") and len(line) < 1000:
            taken.settimeout(max(0.001, deadline - time.monotonic()))  # of all of it: a stranger may send slowly
            part = taken.recv(1)  # a message may follow at once
            if not part:
                return None
            line += part
        said, rank = json.loads(line)
    except (OSError, ValueError, TypeError):
        return None
    known = isinstance(said, str) and said == token and isinstance(rank, int) and rank in expected
    return rank if known else None
