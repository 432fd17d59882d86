"""How many objects to ask for at once: a page is bounded in bytes, for its objects take twenty times its text.

The API server bounds a page by the number of its objects alone, each of which may hold 1.5 MB.
"""

import aiohttp

FIRST, MOST = 25, 250
MOST_BYTES = 2 << 20
READ_BYTES = 1 << 16


class PageSize:
    """The size of the next page of one list: fewer objects after a page that was too long, more after short ones."""

    def __init__(self) -> None:
        self.objects = FIRST

    @property
    def most_bytes(self) -> int | None:
        """How long the page may be; None: it is one object, however long that is."""
        return MOST_BYTES if self.objects > 1 else None

    def was_too_long(self) -> None:
        """Ask for fewer objects."""
        self.objects = max(1, self.objects // 5)

    def was(self, size: int) -> None:
        """Ask for more objects after a page of so many bytes, if twice as many will most likely do."""
        if size <= MOST_BYTES // 4:
            self.objects = min(MOST, 2 * self.objects)


async def read_page(response: aiohttp.ClientResponse, most: int | None) -> bytes | None:
    """Return the body of an answer; None: it is longer than `most` bytes, and the rest is not read."""
    if most is None:
        return await response.read()
    body = bytearray()
    async for chunk in response.content.iter_chunked(READ_BYTES):
        body += chunk
        if len(body) > most:
            response.close()
            return None
    return bytes(body)
