"""How a rank that was started again comes to the gang: it knocks at the door of the lowest live rank.

The address of the door is a file in the run's directory. Nobody is believed without a proof of the run's secret:

| line      | from     | holds                                                                               |
|-----------|----------|-------------------------------------------------------------------------------------|
| challenge | door     | a nonce                                                                             |
| knock     | newcomer | who it is and where it listens, a nonce, and the proof of all of it and both nonces |
| welcome   | door     | the proof for the newcomer's nonce; or why it is turned away                        |

Then the newcomer waits: at a boundary the ranks let it in (admission.py). Each line is JSON of a known type and size.
"""

import json
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from heterotp_trainer.launch.door import Key
from heterotp_trainer.launch.facts import Facts

MOST_LINE = 1 << 20  # bytes
MOST_WAITING = 64  # newcomers at one door
SECONDS = 3.0  # for a line of the other side
LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Newcomer:
    """A rank that wants to come back, where it listens, and the name of its machine."""

    origin: int
    host: str
    port: int
    node: str
    facts: Facts


@dataclass(frozen=True)
class Knock:
    """What a newcomer says at the door."""

    newcomer: Newcomer
    nonce: str
    proof: str


@dataclass(frozen=True)
class DoorPlace:
    """Where the door is; port 0: the gang has ended."""

    host: str
    port: int


class ClosedError(RuntimeError):
    """The gang has ended, or has no door: there is nothing to come back to."""


def send_line(connection: socket.socket, message: Any) -> None:
    """Send a value as a line of JSON; raises OSError."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def receive_line(connection: socket.socket, kind: Any, seconds: float) -> Any:
    """Return the next line as a value of this type.

    Raises OSError where none comes in time, ValueError where it is not of this type.
    """
    deadline, line = time.monotonic() + seconds, b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(1)  # what follows belongs to another reader
        if not part:
            raise ConnectionResetError("the other side has closed the connection")
        line += part
        if len(line) > MOST_LINE or time.monotonic() > deadline:
            raise ValueError("too long")
    try:
        return TypeAdapter(kind).validate_json(line)
    except ValidationError:
        raise ValueError("not of the type that is exchanged here") from None


def _words(nonce: str, newcomer: Newcomer, own_nonce: str) -> str:
    return json.dumps([nonce, asdict(newcomer), own_nonce], sort_keys=True)


def door_file(folder: Path, attempt: int) -> Path:
    """Return the file with the address of the door."""
    return folder / f".door-{attempt}"


class Door:
    """Where newcomers knock; problem: returns why one cannot come in, empty: it can."""

    def __init__(self, key: Key, folder: Path, attempt: int, host: str, problem: Callable[[Newcomer], str]) -> None:
        """Open the door; where its address cannot be written, nobody finds it."""
        self._key, self._problem, self._attempt = key, problem, attempt
        self._file = door_file(folder, attempt)
        self._waiting: dict[int, tuple[Newcomer, socket.socket]] = {}
        self._lock, self._over = threading.Lock(), threading.Event()
        self._listener = socket.create_server((host, 0))
        self._listener.settimeout(LOOK_SECONDS)
        self._place = DoorPlace(host, self._listener.getsockname()[1])
        self._write(self._place)
        self._thread = threading.Thread(target=self._run, name="door", daemon=True)
        self._thread.start()

    def _write(self, place: DoorPlace) -> None:
        with suppress(OSError):
            made = self._file.with_name(f"{self._file.name}.new")
            made.write_text(json.dumps(asdict(place)), encoding="utf-8")
            made.replace(self._file)

    @property
    def waiting(self) -> bool:
        """Whether a newcomer waits."""
        with self._lock:
            for origin, (_, connection) in list(self._waiting.items()):
                if _is_closed(connection):
                    self._waiting.pop(origin)[1].close()
            return bool(self._waiting)

    def next(self) -> tuple[Newcomer, socket.socket] | None:
        """Return the newcomer that is let in next, and take it from those that wait."""
        with self._lock:
            return self._waiting.pop(min(self._waiting)) if self._waiting else None

    def close(self, *, ended: bool = False) -> None:
        """Turn all away that wait; ended: newcomers hear that there is no gang, unless another rank leads it."""
        self._over.set()
        self._listener.close()
        with suppress(ClosedError):
            if ended and where_to_knock(self._file.parent, self._attempt) == self._place:
                self._write(DoorPlace("", 0))
        with self._lock:
            for _, connection in self._waiting.values():
                connection.close()
            self._waiting = {}

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            with suppress(OSError, ValueError):
                if self._answer(connection):
                    continue
            connection.close()

    def _answer(self, connection: socket.socket) -> bool:
        """Return whether the process at the other end may wait: it has proved that it belongs to the run."""
        nonce = secrets.token_hex(16)
        connection.settimeout(SECONDS)
        send_line(connection, nonce)
        said: Knock = receive_line(connection, Knock, SECONDS)
        if not self._key.proves(said.proof, "knock", _words(nonce, said.newcomer, said.nonce)):
            print("turned away: a process that knocked does not have the secret of this job and attempt", flush=True)
            return False
        if why := self._problem(said.newcomer):
            send_line(connection, {"refused": why})
            return False
        with self._lock:
            earlier = self._waiting.pop(said.newcomer.origin, None)
            if earlier is not None:
                earlier[1].close()
            if len(self._waiting) >= MOST_WAITING:
                return False
            send_line(connection, {"proof": self._key.proof("door", said.nonce)})
            self._waiting[said.newcomer.origin] = said.newcomer, connection
        return True


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the other side has closed a connection, over which it has nothing to say now."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(0))


def where_to_knock(folder: Path, attempt: int) -> DoorPlace | None:
    """Return where the door is; None: there is no file yet. Raises ClosedError where the gang has ended."""
    try:
        place: DoorPlace = TypeAdapter(DoorPlace).validate_json(door_file(folder, attempt).read_bytes())
    except (OSError, ValidationError):
        return None
    if not place.port:
        raise ClosedError("the gang has ended")
    return place


def knock(key: Key, folder: Path, attempt: int, own: Newcomer, seconds: float) -> tuple[DoorPlace, socket.socket]:
    """Return the door, and a connection over which this rank is let in.

    Raises ClosedError where the gang has ended, or no door is opened within `seconds`.
    """
    deadline, why = time.monotonic() + seconds, "nobody has opened a door"
    while True:
        place = where_to_knock(folder, attempt)
        if place is not None:
            try:
                return place, _knocked(key, place, own)
            except (OSError, ValueError) as error:
                why = str(error)
        if time.monotonic() > deadline:
            raise ClosedError(f"the gang did not answer within {seconds:.0f} s: {why}")
        time.sleep(LOOK_SECONDS)


def _knocked(key: Key, place: DoorPlace, own: Newcomer) -> socket.socket:
    connection = socket.create_connection((place.host, place.port), SECONDS)
    try:
        nonce, own_nonce = receive_line(connection, str, SECONDS), secrets.token_hex(16)
        proof = key.proof("knock", _words(nonce, own, own_nonce))
        send_line(connection, asdict(Knock(own, own_nonce, proof)))
        said = receive_line(connection, dict[str, str], SECONDS)
        if "refused" in said:
            raise ValueError(said["refused"])
        if not key.proves(said.get("proof", ""), "door", own_nonce):
            raise ValueError("the door cannot prove that it has the secret of this run")
    except BaseException:
        connection.close()
        raise
    return connection
