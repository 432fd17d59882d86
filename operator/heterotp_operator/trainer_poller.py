"""Polls rank 0 of every running job for its status document; a failed poll is reported, not raised.

A rank's answer is a stranger's. The request, and the lease that it renews, go only to the pod whose controller is the
job; of an answer that cannot be used only that fact is kept, for its text and its kind would tell a job's owner what
else answers at an address.
"""

import asyncio
import ipaddress
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from heterotp_api import names
from heterotp_api.trainer_status import MOST_BYTES, TrainerStatus

from heterotp_operator.bounded_request import UnansweredError, UnusableAnswerError, answer_of, fetch
from heterotp_operator.metrics import Metrics
from heterotp_operator.progress_watch import ProgressWatch
from heterotp_operator.published import PublishedControls
from heterotp_operator.queue import Key, WorkQueue
from heterotp_operator.reconcile.objects import at
from heterotp_operator.reconcile.observed import PollFailure, Progress, TrainerReport
from heterotp_operator.renewals import KeyReader, Renewals, challenge_of
from heterotp_operator.store import Json, Stores, controller_of

logger = logging.getLogger(__name__)
DEFAULT_PORT = 9400
PATH = "/status"
JITTER = 0.2
NEWS_SECONDS = 1.0  # between polls of ranks that have not applied the newest control document yet
NEWS_POLLS = 10  # of them in a row; ranks that say that they are behind for longer are polled less and less often
SILENT_SECONDS = 20.0  # at most, between polls of a rank that does not answer
LONG_BYTES = 16 << 10  # an answer of so many bytes is parsed by another thread


@dataclass(frozen=True)
class Target:
    """Where rank 0 of a job answers."""

    pod_uid: str
    address: str
    port: int


@dataclass(frozen=True)
class Answer:
    """What a poll returned: a status, or a kind of failure; challenge: see renewals.py.

    connected: without an answer, whether a connection was made.
    """

    status: TrainerStatus | None
    failure: PollFailure = ""
    challenge: str = ""
    connected: bool = False


def target(job: Json | None, pods: list[Json]) -> Target | None:
    """Return where to ask: the running pod of rank 0 of the job's current attempt, None if there is none.

    A pod is the job's when the job's uid is its controller's; anybody can write labels.
    """
    if job is None:
        return None
    attempt = str(job["status"].get("attempt", ""))
    for pod in pods:
        labels, status = pod["metadata"].get("labels") or {}, pod["status"]
        current = labels.get(names.LABEL_FIRST_RANK) == "0" and labels.get(names.LABEL_ATTEMPT) == attempt
        owned = (controller_of(pod) or {}).get("uid") == job["metadata"]["uid"]
        if owned and current and status.get("phase") == "Running" and _is_address(status.get("podIP")):
            return Target(pod["metadata"]["uid"], status["podIP"], _port(job))
    return None


def _is_address(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _port(job: Json) -> int:
    port = at(job, "spec", "metrics", "port")
    return port if isinstance(port, int) and 0 < port < 1 << 16 else DEFAULT_PORT


class TrainerPoller:
    """Polls each rank 0 every few seconds, with jitter; another status or kind of failure enqueues the job."""

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
    ) -> None:
        """lease: what this process is called in the header of its polls. key: the operator's own, once it is read."""
        self._stores, self._published, self._changed = stores, published, changed
        self._seconds, self._timeout, self._metrics, self._now = seconds, timeout, metrics, now
        self._renewals = Renewals(lease, key)
        self._reports: dict[Key, tuple[str, TrainerReport]] = {}
        self._unanswered: dict[Key, int] = {}  # polls in a row
        self._behind: dict[Key, tuple[tuple[str, int], int]] = {}  # pod, generation, polls that found it behind
        self._watch = ProgressWatch()
        self.queue = WorkQueue(workers=workers)

    def report(self, key: Key) -> TrainerReport | None:
        """Return the last report of rank 0 of the job's pods; None when it is of a pod that is gone."""
        uid, report = self._reports.get(key, ("", None))
        return report if any(pod["metadata"]["uid"] == uid for pod in self._stores.pods.of_job(key)) else None

    def progress(self, key: Key) -> Progress | None:
        """Return the progress of the pod that the last report is of; None before its first answer."""
        uid, _ = self._reports.get(key, ("", None))
        return self._watch.of(key, uid)

    def forget(self, key: Key) -> None:
        """Drop what is known of a job that is gone."""
        self._watch.forget(key)
        self._renewals.forget(key)
        self._reports.pop(key, None)
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
        where = target(job, self._stores.pods.of_job(key))
        if job is None or where is None:  # an event of the job or of its pods enqueues the key again
            self._watch.forget(key)
            return
        answer = await ask(where, self._renewals.headers(key, job, where.pod_uid), self._timeout)
        self._metrics.polls.labels(answer.failure or "success").inc()
        if answer.failure != "NoAnswer":
            self._watch.answered(key, where.pod_uid, answer.status)
        elif answer.connected:
            self._watch.connected(key, where.pod_uid)
        self._take(key, where.pod_uid, answer)
        pause = self._pause(key, where.pod_uid, answer)
        if self._renewals.take(key, where.pod_uid, answer.challenge):  # the next poll renews the lease
            pause = min(pause, NEWS_SECONDS)
        self.queue.add_after(key, pause * random.uniform(1 - JITTER, 1 + JITTER))

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
        self._reports[key] = uid, TrainerReport(answer.status, answer.failure, since)
        if old is None or (old.status, old.failure) != (answer.status, answer.failure):
            self._changed(key)


async def ask(where: Target, headers: dict[str, str], seconds: float) -> Answer:
    """Return rank 0's status document, or the kind of failure; one request, at most `seconds`."""
    try:
        received = await fetch(where.address, where.port, PATH, headers, seconds, MOST_BYTES)
    except UnansweredError:
        return Answer(None, "NoAnswer", connected=True)
    except OSError:  # TimeoutError is one
        return Answer(None, "NoAnswer")
    except UnusableAnswerError:
        return Answer(None, "BadAnswer")
    if len(received) < LONG_BYTES:
        return understood(received)
    return await asyncio.to_thread(understood, received)


def understood(received: bytes) -> Answer:
    """Return the status document among the bytes that rank 0 sent, or that there is none."""
    try:
        body, headers = answer_of(received)
        challenge = challenge_of(headers.get(names.LEASE_CHALLENGE_HEADER))
        return Answer(TrainerStatus.model_validate_json(body), challenge=challenge)
    except (UnusableAnswerError, ValueError, RecursionError):
        return Answer(None, "BadAnswer")
