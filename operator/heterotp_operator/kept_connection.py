"""A connection to a stranger that is kept for more requests, one at a time.

Stricter than a first request, whose peer may be any server: here it has shown to be a trainer's. An answer has a length
and is whole, or the connection ends; bytes that nobody asked for, or beyond that length, end it too, so that no answer
is taken for that of a later request.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass

from heterotp_operator.bounded_request import UNPACKED, UnansweredError, UnusableAnswerError

MOST_HEAD_BYTES, MOST_HEADERS = 8 << 10, 64
USABLE = (200, 304)
END = b"\r\n\r\n"
STATUS_LINE = re.compile(rb"HTTP/1\.1 ([0-9]{3})(?: [\t\x20-\x7e]*)?")
HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}):[ \t]*([\x20-\x7e]*)")


class GoneError(UnansweredError):
    """The peer had ended the connection before it was asked: it may answer on another one."""


@dataclass(frozen=True)
class Head:
    """What stands before the body of an answer; names of headers in lower case."""

    status: int
    length: int
    headers: dict[str, str]


def head_of(received: bytes) -> Head:
    """Return the head of an answer of status 200 or 304 whose body has a length. Raises UnusableAnswerError."""
    first, *lines = received.split(b"\r\n")
    status = STATUS_LINE.fullmatch(first)
    if status is None or int(status[1]) not in USABLE or len(lines) > MOST_HEADERS:
        raise UnusableAnswerError("no answer with status 200 or 304")
    headers: dict[str, str] = {}
    for line in lines:
        found = HEADER.fullmatch(line)
        name = found[1].decode("ascii").lower() if found is not None else ""
        if found is None or name in headers:
            raise UnusableAnswerError("a line that is no header, or one that stands there twice")
        headers[name] = found[2].decode("ascii").rstrip()
    return Head(int(status[1]), _length(int(status[1]), headers), headers)


def _length(status: int, headers: dict[str, str]) -> int:
    packed = headers.get("content-encoding", "").lower() not in UNPACKED
    if packed or "transfer-encoding" in headers:
        raise UnusableAnswerError("packed, or in chunks")
    if status == 304:  # never has a body, whatever length it names
        return 0
    length = headers.get("content-length", "")
    if re.fullmatch("[0-9]{1,9}", length) is None:
        raise UnusableAnswerError("without a length")
    return int(length)


class KeptConnection(asyncio.Protocol):
    """Sends one request after the other, and takes one whole answer of at most `most_bytes` for each."""

    def __init__(self, most_bytes: int, ended: Callable[["KeptConnection"], object] = lambda connection: None) -> None:
        """ended: called once the connection is no more."""
        self._most_bytes, self._ended = most_bytes, ended
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[Head, bytes]] | None = None
        self._received = bytearray()
        self._head: tuple[Head, int] | None = None  # and where it ends
        self.asked = 0  # requests so far

    @property
    def open(self) -> bool:
        """Whether one more request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        """End the connection at once: closing in good order would wait for the peer."""
        if self._transport is not None:
            self._transport.abort()

    async def ask(self, request: bytes) -> tuple[Head, bytes]:
        """Send a request, return head and body of the answer; the caller bounds the time, and aborts after an error.

        Raises GoneError where the connection ended before, UnansweredError where it ends during the answer,
        UnusableAnswerError.
        """
        if not self.open or self._transport is None:
            raise GoneError("closed since the last answer")
        self._received, self._head, self.asked = bytearray(), None, self.asked + 1
        self._answer = asyncio.get_running_loop().create_future()
        try:
            self._transport.write(request)
            return await self._answer
        finally:
            self._answer, self._received = None, bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take a part of the answer."""
        if self._answer is None or self._answer.done():  # nobody has asked for it
            self.abort()
            return
        self._received += data
        try:
            self._take(self._answer)
        except UnusableAnswerError as error:
            self._answer.set_exception(error)
            self.abort()

    def _take(self, answer: "asyncio.Future[tuple[Head, bytes]]") -> None:
        if self._head is None:
            self._head = self._read_head()
        if self._head is None:
            return
        head, at = self._head
        left = len(self._received) - at - head.length
        if left < 0:
            return
        if left > 0 or head.headers.get("connection", "").lower() == "close":
            self.abort()
        answer.set_result((head, bytes(self._received[at : at + head.length])))

    def _read_head(self) -> tuple[Head, int] | None:
        end = self._received.find(END, 0, MOST_HEAD_BYTES)
        if end < 0:
            if len(self._received) >= MOST_HEAD_BYTES:
                raise UnusableAnswerError(f"a head of more than {MOST_HEAD_BYTES} bytes")
            return None
        head, at = head_of(bytes(self._received[:end])), end + len(END)
        if at + head.length > self._most_bytes:
            raise UnusableAnswerError(f"more than {self._most_bytes} bytes")
        return head, at

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits for an answer."""
        self._transport = None
        self._ended(self)
        if self._answer is not None and not self._answer.done():
            gone = self.asked > 1 and not self._received
            self._answer.set_exception(GoneError("closed") if gone else UnansweredError("closed without an answer"))
