"""The control documents of a run: rank 0 watches the file, all ranks apply a new document at the same boundary."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from heterotp_api.control import LOSSLESS_AUTO, SCHEMA_VERSION, ControlDocument
from heterotp_api.load import first_error
from heterotp_api.names import CONTROL_FILE
from heterotp_api.policy import BalancingSettings, beyond, policy_problem
from pydantic import ValidationError

from heterotp_trainer.boundary.lease import Lease
from heterotp_trainer.launch.door import Key
from heterotp_trainer.launch.json_messages import broadcast_json

RefusalReason = Literal["malformed", "newer", "invalid", "older"]
POLL_SECONDS = 0.25  # an edit must be in force within a second


class ControlError(ValueError):
    """A document that cannot be used.

    reason: the value of a metric's label. generation: of the document; None where it names none.
    """

    def __init__(self, reason: RefusalReason, message: str, generation: int | None = None) -> None:
        self.reason, self.generation = reason, generation
        super().__init__(message)


def parse_document(text: str) -> ControlDocument:
    """Return the document; raise ControlError with reason malformed, newer or invalid."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        raise ControlError("malformed", f"{CONTROL_FILE}: is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ControlError("malformed", f"{CONTROL_FILE}: must be an object, not {type(body).__name__}")
    generation = body.get("generation")
    generation = generation if type(generation) is int else None
    version = body.get("schemaVersion", SCHEMA_VERSION)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        message = f"{CONTROL_FILE}: schemaVersion: {version!r} is newer than {SCHEMA_VERSION}; upgrade the trainer"
        raise ControlError("newer", message, generation)
    try:
        return ControlDocument.model_validate(body)
    except ValidationError as error:
        field, value, message = first_error(error)
        shown = "" if value is None else f" {value!r}"
        raise ControlError("invalid", f"{CONTROL_FILE}: {field}:{shown} {message}", generation) from None


def check_ranks(document: ControlDocument, ranks: int) -> None:
    """Raise ControlError naming the field where a document names a rank that a gang of `ranks` ranks lacks."""
    problem = policy_problem(document.balancing, ranks)
    if problem is not None:
        raise ControlError("invalid", f"{CONTROL_FILE}: balancing.{problem}", document.generation)
    for number, injection in enumerate(document.injections):
        wrong = beyond(injection.ranks, ranks)
        if wrong is not None:
            raise ControlError("invalid", f"{CONTROL_FILE}: injections[{number}].ranks: {wrong}", document.generation)
    if document.trace is not None and (wrong := beyond(document.trace.ranks or [], ranks)) is not None:
        raise ControlError("invalid", f"{CONTROL_FILE}: trace.ranks: {wrong}", document.generation)


def no_problem(settings: BalancingSettings) -> str | None:
    """Return that the model can do all that these settings ask for."""
    return None


class ControlFile:
    """The newest valid document of a directory, and the error of the newest file where that one is not valid."""

    def __init__(
        self, directory: Path, ranks: int, on_error: Callable[[ControlError], None] = lambda error: None
    ) -> None:
        self._path, self._ranks = directory / CONTROL_FILE, ranks
        self._on_error = on_error
        self._seen: tuple[int, int, int] | None = None
        self.document: ControlDocument | None = None
        self.error: ControlError | None = None
        # what the model cannot do of the settings, as `field: value: what would be right`; None: nothing
        self.problem: Callable[[BalancingSettings], str | None] = no_problem

    def check(self) -> None:
        """Read the file if it changed; links are followed: a mounted ConfigMap changes by a swapped symbolic link."""
        try:
            stat = self._path.stat()
            signature = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if signature == self._seen:
                return
            raw = self._path.read_bytes()
        except OSError:
            return  # absent, or being swapped at this moment: the next check reads it
        self._seen = signature
        self._take(raw)

    def _take(self, raw: bytes) -> None:
        try:
            document = parse_document(raw.decode("utf-8", errors="replace"))
            check_ranks(document, self._ranks)
            if (problem := self.problem(document.balancing)) is not None:
                raise ControlError("invalid", f"{CONTROL_FILE}: balancing.{problem}", document.generation)
            known = self.document.generation if self.document else -1
            if document.generation < known:
                message = f"{CONTROL_FILE}: generation: {document.generation} is older than {known}, which is in force"
                raise ControlError("older", message, document.generation)
        except ControlError as error:
            self.error = error.with_traceback(None)
            self._on_error(error)
            return
        self.document, self.error = document, None

    def watch(self, stop: threading.Event) -> None:
        """Check the file every POLL_SECONDS until `stop` is set."""
        while not stop.wait(POLL_SECONDS):
            self.check()


class ControlChannel:
    """One rank's end of the path that brings control documents from rank 0's file to all ranks.

    `announcement` enters rank 0's report of a boundary; at the next boundary all ranks call `receive`.
    """

    def __init__(
        self,
        directory: Path | None,
        ranks: int,
        group: dist.ProcessGroup | None,
        on_error: Callable[[ControlError], None] = lambda error: None,
        key: Key | None = None,
        rank: int = 0,
    ) -> None:
        """directory: where rank 0 reads the file; None on other ranks, or where there is no control directory.

        ranks: that a document may name; rank: this one's. key: by which polls renew the lease, see Lease.
        """
        self.document: ControlDocument | None = None  # in force, the same on all ranks
        self.lease = Lease(key)
        self._group, self._rank = group, rank
        self._file = ControlFile(directory, ranks, on_error) if directory is not None else None
        self._outgoing = b""  # rank 0: the announced document, until it is broadcast
        self._stop = threading.Event()

    def start(self, problem: Callable[[BalancingSettings], str | None] = no_problem) -> None:
        """Read the file, then watch it from a thread; does nothing without a directory. problem: see ControlFile."""
        if self._file is not None:
            self._file.problem = problem
            self._file.check()
            threading.Thread(target=self._file.watch, args=(self._stop,), name="control-file", daemon=True).start()

    def stop(self) -> None:
        """Stop watching the file."""
        self._stop.set()

    def close(self) -> None:
        """Give up the group; no document can be received any more."""
        del self._group

    @property
    def generation(self) -> int:
        """Generation of the document in force; 0 before the first."""
        return self.document.generation if self.document is not None else 0

    @property
    def newest_generation(self) -> int:
        """Generation of the newest valid document of the file, which need not be in force yet; 0 without one."""
        document = self._file.document if self._file is not None else None
        return document.generation if document is not None else 0

    def newest_policy(self) -> BalancingSettings:
        """Return the policy of rank 0's newest valid document, in force or not; the default without one (all ranks)."""
        document = self._file.document if self._file is not None else None
        policy = document.balancing if document is not None else LOSSLESS_AUTO
        found: BalancingSettings = broadcast_json(policy, BalancingSettings, self._rank, self._group)
        return found

    @property
    def error(self) -> ControlError | None:
        """Why the newest file was refused; None where it was not."""
        return self._file.error if self._file is not None else None

    def lease_is_over(self) -> bool:
        """Return whether the lease of the document in force has run out; False where it has none."""
        return self.lease.is_over(self.document.lease_seconds if self.document is not None else None)

    def announcement(self) -> tuple[int, int]:
        """Return the newest generation and, where that document is not yet in force, its length in bytes, else 0."""
        document = self._file.document if self._file is not None else None
        if document is None or self._outgoing or document == self.document:
            return (document.generation if document is not None else 0), 0
        self._outgoing = document.model_dump_json(by_alias=True, exclude_none=True).encode()
        return document.generation, len(self._outgoing)

    def receive(self, length: int) -> ControlDocument:
        """Return the announced document of `length` bytes, from now on in force (all ranks); renew its lease."""
        data = torch.frombuffer(bytearray(self._outgoing), dtype=torch.uint8) if self._outgoing else None
        buffer = data if data is not None else torch.empty(length, dtype=torch.uint8)
        dist.broadcast(buffer, src=0, group=self._group)
        self._outgoing = b""
        self.document = parse_document(buffer.numpy().tobytes().decode())
        self.lease.renew()
        return self.document
