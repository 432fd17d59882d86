"""Answers of the API server as they come over the wire: bytes to objects, and the events of a watch, one a line."""

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import orjson

from heterotp_operator.store import Json

MOST_EVENT_BYTES = 64 << 20  # of one event: an object holds 1.5 MB, its text a multiple


def decoded(data: bytes) -> Json:
    """Return an answer's object. Raises ValueError.

    orjson saves a tenth of the operator's time, but reads no more than 1,024 levels.
    """
    answer: Json
    try:
        answer = orjson.loads(data)
    except ValueError:
        pass  # its error holds the text: it goes before the text is read again
    else:
        return answer
    answer = json.loads(data)
    return answer


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of an answer, without a limit as low as that of StreamReader. Raises ValueError."""
    rest = bytearray()
    async for chunk in content.iter_any():
        first, *others = chunk.split(b"\n")
        rest += first
        for line in others:
            yield bytes(rest)
            rest = bytearray(line)
        if len(rest) > MOST_EVENT_BYTES:
            raise ValueError(f"an event is longer than {MOST_EVENT_BYTES} bytes")
        await asyncio.sleep(0)  # a chunk that waits already would leave no turn to others
