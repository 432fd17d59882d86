"""One HTTP request to a stranger: at most so many bytes in so many seconds, whatever it answers.

Nothing is followed and nothing is unpacked: no redirects, no compression, no proxies, no cookies. All bytes are read
first, bounded, and understood afterwards.
"""

import asyncio
import http.client
import io
from collections.abc import Mapping
from email.message import Message
from typing import Any, cast

READ_BYTES = 1 << 16
UNPACKED = ("", "identity")


class UnusableAnswerError(Exception):
    """The bytes are no answer that can be used; the message is ours, without the peer's text."""


class UnansweredError(OSError):
    """The connection was made, and no whole answer came: who listens there is within reach."""


class _Received:
    """Stands for the socket of an http.client.HTTPResponse whose bytes are all there."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, *_: object, **__: object) -> io.BytesIO:
        return io.BytesIO(self._received)


async def fetch(host: str, port: int, path: str, headers: Mapping[str, str], seconds: float, most_bytes: int) -> bytes:
    """Return all that a server sends to GET `path` until it closes the connection.

    Raises OSError or TimeoutError without a connection, UnansweredError without an answer, UnusableAnswerError for more
    than `most_bytes`.
    """
    connected = False
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(host, port, limit=READ_BYTES)
            connected = True
            try:
                writer.write(request_of(host, port, path, {"Connection": "close", **headers}))
                received = await _all_of(reader, most_bytes)
            finally:
                writer.transport.abort()  # closing in good order would wait for the peer
    except OSError as error:  # TimeoutError is one
        if connected:
            raise UnansweredError(f"connected, and then: {type(error).__name__}") from None
        raise
    if not received:
        raise UnansweredError("closed without an answer")
    return received


async def _all_of(reader: asyncio.StreamReader, most_bytes: int) -> bytes:
    received = bytearray()
    while chunk := await reader.read(READ_BYTES):
        received += chunk
        if len(received) > most_bytes:
            raise UnusableAnswerError(f"more than {most_bytes} bytes")
    return bytes(received)


def answer_of(received: bytes) -> tuple[bytes, Message]:
    """Return the body and the headers of an answer with status 200. Raises UnusableAnswerError."""
    try:
        response = http.client.HTTPResponse(cast(Any, _Received(received)), method="GET")
        response.begin()
        packed = response.getheader("Content-Encoding", "")
        if response.status != http.HTTPStatus.OK or packed.lower() not in UNPACKED:
            raise UnusableAnswerError(f"HTTP {response.status}, packed: {packed.lower() not in UNPACKED}")
        return response.read(), response.headers
    except UnusableAnswerError:
        raise
    except Exception as error:  # a stranger's bytes: the library raises what it likes on them
        raise UnusableAnswerError(f"no HTTP answer: {type(error).__name__}") from None


def request_of(host: str, port: int, path: str, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of a GET request."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    fixed = {"Host": where, "Accept": "application/json", "Accept-Encoding": "identity"}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in {**fixed, **headers}.items()), "", ""]
    return "\r\n".join(lines).encode("ascii")
