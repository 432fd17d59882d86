"""Polls rank 0 of every running job for its status document; a failed poll is reported, not raised.

A rank's answer is a stranger's. The request, and the lease that it renews, go only to the pod whose controller is the
job (poll_target.py), on a connection that is this job's alone (rank_client.py).
"""

import logging
import random
import time
from collections.abc import Callable

from heterotp_api.trainer_status import TrainerStatus

from heterotp_operator.metrics import Metrics
from heterotp_operator.poll_answer import Answer
from heterotp_operator.poll_target import Target, target
from heterotp_operator.progress_watch import ProgressWatch
from heterotp_operator.published import PublishedControls
from heterotp_operator.queue import Key, WorkQueue
from heterotp_operator.rank_client import RankClient
from heterotp_operator.reconcile.observed import Progress, TrainerReport
from heterotp_operator.reconcile.poll_news import Shown, is_worth_a_look
from heterotp_operator.reconcile.refresh import refresh_seconds
from heterotp_operator.renewals import KeyReader, Renewals
from heterotp_operator.store import Stores

logger = logging.getLogger(__name__)
JITTER = 0.2
NEWS_SECONDS = 1.0  # between polls of ranks that have not applied the newest control document yet
NEWS_POLLS = 10  # of them in a row; ranks that say that they are behind for longer are polled less and less often
SILENT_SECONDS = 20.0  # at most, between polls of a rank that does not answer


class TrainerPoller:
    """Polls each rank 0 every few seconds, with jitter; news, and others after a while, enqueue the job."""

    def __init__(
        self,
        stores: Stores,
        published: PublishedControls,
        changed: Callable[[Key], None],
        seconds: float,
        timeout: float,
        lease: str,
        metrics: Metrics,
        workers: int | None = None,
        now: Callable[[], float] = time.time,
        key: KeyReader = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """lease: what this process is called in the header of its polls. key: the operator's own, once it is read."""
        self._stores, self._published, self._changed = stores, published, changed
        self._seconds, self._timeout, self._metrics, self._now = seconds, timeout, metrics, now
        self._renewals = Renewals(lease, key)
        self._targets: dict[Key, Target | None] = {}  # of the last poll
        self._monotonic = monotonic
        self._client = RankClient(monotonic)
        self._reports: dict[Key, tuple[str, TrainerReport]] = {}
        self._shown: dict[Key, Shown] = {}  # of the reports that enqueued their jobs last
        self._unanswered: dict[Key, int] = {}  # polls in a row
        self._behind: dict[Key, tuple[tuple[str, int], int]] = {}  # pod, generation, polls that found it behind
        self._watch = ProgressWatch()
        self.queue = WorkQueue(workers=workers)

    def report(self, key: Key) -> TrainerReport | None:
        """Return the last report of rank 0 of the job's pods; None when it is of a pod that is gone."""
        uid, report = self._reports.get(key, ("", None))
        return report if any(pod["metadata"]["uid"] == uid for pod in self._stores.pods.leaders(key)) else None

    def progress(self, key: Key) -> Progress | None:
        """Return the progress of the pod that the last report is of; None before its first answer."""
        uid, _ = self._reports.get(key, ("", None))
        return self._watch.of(key, uid)

    def look(self, key: Key) -> None:
        """Poll at once if rank 0 is elsewhere than at the last poll; the events of other pods change nothing."""
        if target(self._stores.jobs.get(key), self._stores.pods.leaders(key)) != self._targets.get(key):
            self.queue.add(key)

    def forget(self, key: Key) -> None:
        """Drop what is known of a job that is gone."""
        self._targets.pop(key, None)
        self._watch.forget(key)
        self._client.forget(key)
        self._renewals.forget(key)
        self._reports.pop(key, None)
        self._shown.pop(key, None)
        self._unanswered.pop(key, None)
        self._behind.pop(key, None)
        self.queue.discard(key)

    async def work(self) -> None:
        """Poll due jobs, for ever; several of these run at the same time."""
        while True:
            key = await self.queue.get()
            try:
                await self._poll(key)
            except Exception:  # of whatever kind: one job's must not end the polls of all
                logger.exception("poll of %s/%s failed", *key)
                self._metrics.polls.labels("error").inc()
                self.queue.add_after(key, self._seconds)
            finally:
                self.queue.done(key)

    async def _poll(self, key: Key) -> None:
        job = self._stores.jobs.get(key)
        where = target(job, self._stores.pods.leaders(key))
        self._targets[key] = where
        if job is None or where is None:  # `look` enqueues the key again
            self._watch.forget(key)
            self._client.forget(key)
            if job is None:
                del self._targets[key]
            return
        headers = self._renewals.headers(key, job, where.pod_uid)
        answer = await self._client.ask(key, where, headers, self._timeout, self._refresh)
        self._metrics.polls.labels(answer.failure or "success").inc()
        if self._stores.jobs.get(key) is None:  # it was deleted meanwhile, and forgotten: nothing is kept of it again
            self.forget(key)
            return
        if answer.failure != "NoAnswer":
            self._watch.answered(key, where.pod_uid, answer.status)
        elif answer.connected:
            self._watch.connected(key, where.pod_uid)
        self._take(key, where.pod_uid, answer)
        pause = self._pause(key, where.pod_uid, answer)
        if self._renewals.take(key, where.pod_uid, answer.challenge):  # the next poll renews the lease
            pause = min(pause, NEWS_SECONDS)
        self.queue.add_after(key, pause * random.uniform(1 - JITTER, 1 + JITTER))

    @property
    def _refresh(self) -> float:
        return refresh_seconds(len(self._stores.jobs))

    def _pause(self, key: Key, pod_uid: str, answer: Answer) -> float:
        """Return the seconds until the next poll; a rank that does not answer is polled less and less often."""
        if answer.failure != "NoAnswer":
            self._unanswered.pop(key, None)
            return min(self._seconds, self._news_pause(key, pod_uid, answer.status))
        failures = self._unanswered[key] = self._unanswered.get(key, 0) + 1
        return max(self._seconds, min(self._seconds * 2.0 ** min(failures - 1, 8), SILENT_SECONDS))

    def _news_pause(self, key: Key, pod_uid: str, status: TrainerStatus | None) -> float:
        """Return the pause for ranks that are behind, for as many polls as ranks need that do follow; then more."""
        control = self._published.get(key)
        if control is None or status is None or status.state != "running" or status.control_error:
            return self._seconds
        generation = control.document.generation
        if generation <= status.applied_generation:
            return self._seconds
        version = pod_uid, generation
        before, polls = self._behind.get(key, (version, 0))
        polls = polls + 1 if before == version else 1
        self._behind[key] = version, polls
        return NEWS_SECONDS * 2.0 ** min(max(0, polls - NEWS_POLLS), 32)

    def _take(self, key: Key, uid: str, answer: Answer) -> None:
        old_uid, old = self._reports.get(key, ("", None))
        if old_uid != uid:
            old = None
        # `since` is kept while failures follow each other, whatever their kinds are
        same_state = old is not None and (old.status is None) == (answer.status is None)
        since = old.since if old is not None and same_state else self._now()
        report = TrainerReport(answer.status, answer.failure, since)
        self._reports[key] = uid, report
        now, shown = self._monotonic(), self._shown.get(key) if old is not None else None
        if not answer.unchanged and is_worth_a_look(shown, report, now, self._refresh):
            self._shown[key] = Shown.of(report, now)
            self._changed(key)
