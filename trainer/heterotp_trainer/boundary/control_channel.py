"""The control document, watched by a thread on rank 0: the last good one stays in force."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

from heterotp_api.control import SCHEMA_VERSION, ControlDocument
from heterotp_api.load import first_error
from heterotp_api.names import CONTROL_FILE
from heterotp_api.policy import beyond, policy_problem
from pydantic import ValidationError

POLL_SECONDS = 0.25  # an edit shall be in force within a second


class ControlError(ValueError):
    """A document that cannot be used; `reason` is one word for a metric's label."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


def parse_document(text: str) -> ControlDocument:
    """Return the document; raise ControlError: malformed, newer or invalid."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, or nesting without end
        raise ControlError("malformed", f"{CONTROL_FILE}: is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ControlError("malformed", f"{CONTROL_FILE}: must be an object, not {type(body).__name__}")
    version = body.get("schemaVersion", SCHEMA_VERSION)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        message = f"{CONTROL_FILE}: schemaVersion: {version!r} is newer than {SCHEMA_VERSION}; upgrade the trainer"
        raise ControlError("newer", message)
    try:
        return ControlDocument.model_validate(body)
    except ValidationError as error:
        field, value, message = first_error(error)
        shown = "" if value is None else f" {value!r}"
        raise ControlError("invalid", f"{CONTROL_FILE}: {field}:{shown} {message}") from None


def check_ranks(document: ControlDocument, ranks: int) -> None:
    """Raise ControlError naming the field where a document names ranks that a gang of so many does not have."""
    problem = policy_problem(document.balancing, ranks)
    if problem is not None:
        raise ControlError("invalid", f"{CONTROL_FILE}: balancing.{problem}")
    for number, injection in enumerate(document.injections):
        wrong = beyond(injection.ranks, ranks)
        if wrong is not None:
            raise ControlError("invalid", f"{CONTROL_FILE}: injections[{number}].ranks: {wrong}")


class ControlFile:
    """The newest good document of a directory, and what was wrong with the newest bad one."""

    def __init__(
        self, directory: Path, ranks: int, on_error: Callable[[ControlError], None] = lambda error: None
    ) -> None:
        self._path, self._ranks = directory / CONTROL_FILE, ranks
        self._on_error = on_error
        self._seen: tuple[int, int, int] | None = None
        self.document: ControlDocument | None = None
        self.error = ""

    def check(self) -> None:
        """Read the file if it changed; a mounted ConfigMap changes by a swapped symbolic link, so follow it."""
        try:
            stat = self._path.stat()
            signature = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if signature == self._seen:
                return
            raw = self._path.read_bytes()
        except OSError:
            return  # absent, or swapped this very moment: the next check sees it
        self._seen = signature
        self._take(raw)

    def _take(self, raw: bytes) -> None:
        try:
            document = parse_document(raw.decode("utf-8", errors="replace"))
            check_ranks(document, self._ranks)
            known = self.document.generation if self.document else -1
            if document.generation < known:
                message = f"{CONTROL_FILE}: generation: {document.generation} is older than {known}, which is in force"
                raise ControlError("older", message)
        except ControlError as error:
            self.error = str(error)
            self._on_error(error)
            return
        self.document, self.error = document, ""

    def watch(self, stop: threading.Event) -> None:
        """Check four times a second until told to stop."""
        while not stop.wait(POLL_SECONDS):
            self.check()
