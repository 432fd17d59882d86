"""The operator's HTTP server: /metrics, /healthz (not 200: restart the process) and /readyz."""

import ssl
import time
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from heterotp_operator.metrics import Metrics

STALE_WATCH_SECONDS = 400.0  # a watch ends after 310 s at the latest and is opened again
STUCK_WORK_SECONDS = 300.0  # every API call ends after 30 s


def unhealthy(watches: dict[str, float], oldest_work_seconds: float, now: float) -> str:
    """Return why the process should be restarted, "" if it should not.

    `watches` holds when each resource's watch was opened last (seconds of the monotonic clock); a standby has none.
    """
    for resource, opened in sorted(watches.items()):
        if now - opened > STALE_WATCH_SECONDS:
            return f"the watch of {resource} is dead: opened last {now - opened:.0f} s ago"
    if oldest_work_seconds > STUCK_WORK_SECONDS:
        return f"a worker is stuck for {oldest_work_seconds:.0f} s"
    return ""


class Server:
    """Serves metrics and health on one port; started before anything else."""

    def __init__(
        self,
        metrics: Metrics,
        watches: dict[str, float],
        depths: Callable[[], list[tuple[str, int]]],
        oldest_work_seconds: Callable[[], float],
        unready: Callable[[], str] = lambda: "",
    ) -> None:
        """unready: why this process cannot take over yet, "" if it can."""
        self._metrics, self._watches = metrics, watches
        self._depths, self._oldest, self._unready = depths, oldest_work_seconds, unready
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        """Bind and serve, over TLS with a context. Raises OSError when the port is taken."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/metrics", self._serve_metrics),
                web.get("/healthz", self._serve_health),
                web.get("/readyz", self._serve_ready),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=context).start()

    async def stop(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        self._metrics.collect_totals(self._depths())
        return web.Response(body=generate_latest(self._metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _serve_health(self, _: web.Request) -> web.Response:
        reason = unhealthy(self._watches, self._oldest(), time.monotonic())
        return web.Response(status=503 if reason else 200, text=reason or "ok")

    async def _serve_ready(self, _: web.Request) -> web.Response:
        # a standby is ready too: a rollout must not wait for a Lease that the old pod holds
        reason = self._unready()
        return web.Response(status=503 if reason else 200, text=reason or "ok")
