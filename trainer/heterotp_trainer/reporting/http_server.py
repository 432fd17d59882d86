"""/metrics, /status and /healthz of a rank, served by a thread with its own event loop.

Handlers read what the training loop last published; the training loop never waits for them.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping

from aiohttp import web

from heterotp_trainer.errors import InputError

START_SECONDS = 10.0


class StatusServer:
    """Serves one rank; started before training, stopped after it."""

    def __init__(
        self,
        port: int,
        status: Callable[[], str],
        metrics: Callable[[str], tuple[bytes, str]] | None,
        polled: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda headers: {},
        host: str = "0.0.0.0",
    ) -> None:
        """metrics: Accept header -> body and content type; None: there is no /metrics. polled: headers of a request
        for /status -> more headers of its answer.
        """
        self._port, self._host = port, host
        self._status, self._metrics, self._polled = status, metrics, polled
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
        runner = web.AppRunner(self._application(), access_log=None)
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
        return web.Response(text=self._status(), content_type="application/json", headers=headers)

    async def _get_metrics(self, request: web.Request) -> web.Response:
        assert self._metrics is not None
        body, content_type = self._metrics(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _get_health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")
