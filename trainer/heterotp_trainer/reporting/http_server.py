"""/metrics, /status and /healthz of a rank, served by a thread with its own event loop.

Handlers read what the training loop last published; the training loop never waits for them.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping

from aiohttp import web
from heterotp_api.names import LEASE_HEADER
from heterotp_api.trainer_news import PLACE_HEADER
from heterotp_api.trainer_status import TrainerStatus

from heterotp_trainer.errors import InputError
from heterotp_trainer.reporting.conditional import ConditionalStatus

START_SECONDS = 10.0
JSON = "application/json"
IDLE_SECONDS = 120.0  # for which a connection is kept without a request: polls and scrapes come sooner


def conditional_answer(
    status: ConditionalStatus, request: web.Request, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Answer a poll of the operator, by whole document or by 304; headers: more of the answer."""
    answer = status.polled(request.headers.get("If-None-Match"))
    given = {"ETag": answer.token, PLACE_HEADER: str(answer.place), **(headers or {})}
    if answer.body is None:
        return web.Response(status=304, headers=given)
    return web.Response(text=answer.body, content_type=JSON, headers=given)


class StatusServer:
    """Serves one rank; started before training, stopped after it."""

    def __init__(
        self,
        port: int,
        status: Callable[[], TrainerStatus],
        metrics: Callable[[str], tuple[bytes, str]] | None,
        polled: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda headers: {},
        host: str = "0.0.0.0",
    ) -> None:
        """metrics: Accept header -> body and content type; None: there is no /metrics. polled: headers of a request
        for /status -> more headers of its answer.
        """
        self._port, self._host = port, host
        self._status, self._metrics, self._polled = ConditionalStatus(status), metrics, polled
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="status-server", daemon=True)

    def start(self) -> None:
        """Listen; raise InputError naming the port when it is taken."""
        self._thread.start()
        self._started.wait(START_SECONDS)
        if self._error is not None:
            raise InputError(f"spec.metrics.port: {self._port}: cannot listen: {self._error.strerror}; choose another")

    def stop(self) -> None:
        """Stop listening; do nothing where listening had failed."""
        if self._error is None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = web.AppRunner(self._application(), access_log=None, keepalive_timeout=IDLE_SECONDS)
        try:
            self._loop.run_until_complete(runner.setup())
            site = web.TCPSite(runner, self._host, self._port, reuse_address=True)
            self._loop.run_until_complete(site.start())
        except OSError as error:
            self._error = error
        self._started.set()
        if self._error is None:
            self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def _application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/status", self._get_status)
        if self._metrics is not None:
            application.router.add_get("/metrics", self._get_metrics)
        application.router.add_get("/healthz", self._get_health)
        return application

    async def _get_status(self, request: web.Request) -> web.Response:
        headers = self._polled(request.headers)
        if LEASE_HEADER not in request.headers:
            return web.Response(text=self._status.text(), content_type=JSON, headers=headers)
        return conditional_answer(self._status, request, headers)

    async def _get_metrics(self, request: web.Request) -> web.Response:
        assert self._metrics is not None
        body, content_type = self._metrics(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _get_health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")
