"""Tasks that never end: one that does, by whatever exception, is logged, counted and started again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from heterotp_operator.metrics import Metrics

logger = logging.getLogger(__name__)
PAUSE_SECONDS = 1.0  # before the next start, so that a task that always fails costs little


async def supervise(
    name: str,
    task: Callable[[], Awaitable[None]],
    metrics: Metrics,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Run a task for ever; only being cancelled ends it."""
    while True:
        try:
            await task()
            logger.error("task %s ended; it is started again", name)
        except Exception:  # whatever a job holds: it must not end the process
            logger.exception("task %s failed; it is started again", name)
        metrics.task_restarts.labels(name).inc()
        await sleep(PAUSE_SECONDS)
