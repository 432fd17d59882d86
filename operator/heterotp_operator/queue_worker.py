"""Workers of one queue: one key at a time, with back-off, metrics and a log line for each error."""

import logging
import time
from collections.abc import Awaitable, Callable

from heterotp_operator.cluster import ApiError, Conflict
from heterotp_operator.metrics import Metrics
from heterotp_operator.queue import Key, WorkQueue

logger = logging.getLogger(__name__)
Reconcile = Callable[[Key], Awaitable[float | None]]


class QueueWorker:
    """Takes keys of one kind and reconciles each; `reconcile` returns the seconds after which to look again."""

    def __init__(self, kind: str, queue: WorkQueue, metrics: Metrics, reconcile: Reconcile) -> None:
        self._kind, self._queue, self._metrics, self._reconcile = kind, queue, metrics, reconcile

    async def work(self) -> None:
        """Be one worker, for ever."""
        while True:
            key = await self._queue.get()
            try:
                await self._work_on(key)
            finally:
                self._queue.done(key)

    async def _work_on(self, key: Key) -> None:
        started, result = time.perf_counter(), "error"
        self._metrics.inflight.labels(self._kind).inc()
        try:
            requeue_after = await self._reconcile(key)
            result = "success" if requeue_after is None else "requeued"
            self._queue.forget(key)
            if requeue_after is not None:
                self._queue.add_after(key, requeue_after)
        except Conflict as conflict:  # the stores are behind: the next event or the back-off brings the truth
            result = "conflict"
            logger.info("%s %s/%s: %s", self._kind, *key, conflict)
            self._queue.retry(key)
        except ApiError as error:
            logger.warning("%s %s/%s: %s", self._kind, *key, error)
            self._queue.retry(key)
        except Exception:
            logger.exception("%s %s/%s: reconcile failed", self._kind, *key)
            self._queue.retry(key)
        finally:
            self._metrics.inflight.labels(self._kind).dec()
            self._metrics.reconciles.labels(self._kind, result).inc()
            self._metrics.reconcile_seconds.labels(self._kind).observe(time.perf_counter() - started)
