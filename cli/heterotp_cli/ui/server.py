"""Serves the live page: on the loopback address alone, only to whoever has the token in its address.

GET  /TOKEN/            the page                POST /TOKEN/policy      change how the job balances
GET  /TOKEN/data?...    what a browser lacks    POST /TOKEN/injection   slow a rank, or stop that

Everything else is refused: another host name (a page that has its own name point here), another origin, another token.
"""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiohttp import web
from heterotp_api.formatting import one_line

from heterotp_cli.errors import BadInput, Failed
from heterotp_cli.page.write import live_page
from heterotp_cli.ui.changes import change_injection, change_policy, settled
from heterotp_cli.ui.document import Known, Picture, document
from heterotp_cli.verbs.target import Change, Target

LOOPBACK = "127.0.0.1"
OWN_NAMES = ("127.0.0.1", "localhost", "::1")
EVERY_SECONDS = 1.0  # between two looks at a job, and two polls of a page
MOST_BODY = 16 << 10  # bytes of a request
LINGER_SECONDS = 3.0  # for an open page to see how the job ended
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Feed(Protocol):
    """What a page shows; `look` is called by one thread at a time."""

    @property
    def target(self) -> Target:
        """The job that the buttons change."""

    def look(self) -> Picture:
        """Return the job as it is now."""


def refusal(host: str, origin: str | None, path: str, token: str) -> str:
    """Return why a request gets no answer; empty for one that does. Pure."""
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if name not in OWN_NAMES:
        return "this page answers to 127.0.0.1 and localhost alone"
    if origin is not None and origin != f"http://{host}":
        return "another origin may not ask"
    given = path.split("/")[1] if path.startswith("/") else ""
    if not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
        return "the address lacks the token: use the one that the command printed"
    return ""


class PageServer:
    """The application of one job's page. every: seconds between two looks at the job."""

    def __init__(self, feed: Feed, token: str, every: float = EVERY_SECONDS) -> None:
        self._feed, self._token, self._every = feed, token, every
        self._looking, self._changing = asyncio.Lock(), asyncio.Lock()
        self._picture: Picture | None = None
        self._at = self._polled_at = -1e9
        self._end_shown = asyncio.Event()

    def application(self) -> web.Application:
        """Return the application."""
        application = web.Application(middlewares=[self._guard], client_max_size=MOST_BODY)
        application.router.add_get("/{token}", self._with_slash)
        application.router.add_get("/{token}/", self._page)
        application.router.add_get("/{token}/data", self._data)
        application.router.add_post("/{token}/policy", self._policy)
        application.router.add_post("/{token}/injection", self._injection)
        return application

    async def let_it_end(self) -> None:
        """Wait until a page that is open has seen the end of the job, at most LINGER_SECONDS."""
        if time.monotonic() - self._polled_at < 3 * self._every:
            self._end_shown.clear()
            self._at = -1e9
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end_shown.wait(), LINGER_SECONDS)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        why = refusal(host, origin, request.path, self._token)
        if why:
            return web.Response(status=403, text=f"{why}\n", headers=HEADERS)
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=f"{error.reason}\n")
        response.headers.update(HEADERS)
        return response

    async def _with_slash(self, request: web.Request) -> web.Response:
        """Lead to the page, whose own addresses are relative to it."""
        return web.Response(status=308, headers={"Location": f"/{self._token}/"})

    async def _page(self, request: web.Request) -> web.Response:
        whole = await self._news(Known())
        assert whole is not None
        return web.Response(text=live_page(self._timed(whole)), content_type="text/html")

    async def _data(self, request: web.Request) -> web.Response:
        found = await self._news(_known(request))
        self._polled_at = time.monotonic()
        if self._picture is not None and self._picture.view.ended:
            self._end_shown.set()
        if found is None:
            return web.Response(status=204)
        return web.json_response(self._timed(found))

    def _timed(self, found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "live": {**found["live"], "everySeconds": self._every}}

    async def _news(self, known: Known) -> dict[str, Any] | None:
        """Return what a browser lacks of the job as it was at most `every` seconds ago; see document.

        Several pages do not make more looks. A look changes what documents are made of, so that neither overlaps.
        """
        async with self._looking:
            if self._picture is None or time.monotonic() - self._at >= self._every * 0.9:
                self._picture = await asyncio.to_thread(self._safely)
                self._at = time.monotonic()
            return await asyncio.to_thread(document, self._picture, known)

    def _safely(self) -> Picture:
        try:
            return self._feed.look()
        except (BadInput, Failed) as error:
            if self._picture is None:
                raise web.HTTPServiceUnavailable(reason=one_line(str(error), 200)) from None
            return replace(self._picture, note=f"not up to date: {error}")

    async def _policy(self, request: web.Request) -> web.Response:
        return await self._change(request, change_policy)

    async def _injection(self, request: web.Request) -> web.Response:
        return await self._change(request, change_injection)

    async def _change(self, request: web.Request, make: Callable[[Target, dict[str, Any]], Change]) -> web.Response:
        """Make a change and wait until it is in force; one at a time."""
        if request.content_type != "application/json":  # a form of another page cannot send it
            return _answer(415, "refused", "the request must be JSON")
        try:
            body = await request.json()
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            return _answer(400, "refused", "the request must be a JSON object")
        if self._changing.locked():
            return _answer(409, "refused", "another change is on its way: try again when it is in force")
        async with self._changing:
            try:
                change = await asyncio.to_thread(make, self._feed.target, body)
                told = await asyncio.to_thread(settled, change)
            except (BadInput, Failed) as error:
                return _answer(409, "refused", str(error))
        return _answer(200, told["verdict"], told["message"])


def _answer(status: int, verdict: str, message: str) -> web.Response:
    return web.json_response({"verdict": verdict, "message": one_line(message, 2000)}, status=status)


def _known(request: web.Request) -> Known:
    """Return what a browser has, by the query; nothing for what is not valid."""
    query = request.query
    try:
        columns = int(query.get("columns", "0")[:9])
    except ValueError:
        columns = 0
    return Known(query.get("key", ""), max(0, columns), query.get("decided", ""), query.get("mark", ""))
