"""Polls rank 0 of every running job for its status document; a failed poll is reported, not raised."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from heterotp_api import names
from heterotp_api.trainer_status import TrainerStatus
from pydantic import ValidationError

from heterotp_operator.published import PublishedControls
from heterotp_operator.queue import Key, WorkQueue
from heterotp_operator.reconcile.observed import PollFailure, TrainerReport
from heterotp_operator.store import Json, Stores

DEFAULT_PORT = 9400
MAX_DOCUMENT_BYTES = 4 << 20
JITTER = 0.2
NEWS_SECONDS = 1.0  # between polls of ranks that have not applied the newest control document yet


@dataclass(frozen=True)
class Target:
    """Where rank 0 of a job answers."""

    pod_uid: str
    url: str


@dataclass(frozen=True)
class Answer:
    """What a poll returned: a status, or a kind of failure and its text for people."""

    status: TrainerStatus | None
    failure: PollFailure = ""
    error: str = ""


def _url(address: str, port: int) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}/status"


def target(job: Json | None, pods: list[Json]) -> Target | None:
    """Return where to ask: the running pod of rank 0 of the current attempt, None if there is none."""
    if job is None:
        return None
    attempt = str(job["status"].get("attempt", ""))
    for pod in pods:
        labels, status = pod["metadata"].get("labels", {}), pod["status"]
        current = labels.get(names.LABEL_FIRST_RANK) == "0" and labels.get(names.LABEL_ATTEMPT) == attempt
        if current and status.get("phase") == "Running" and status.get("podIP"):
            port = (job["spec"].get("metrics") or {}).get("port", DEFAULT_PORT)
            return Target(pod["metadata"]["uid"], _url(status["podIP"], port))
    return None


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
        now: Callable[[], float] = time.time,
    ) -> None:
        self._stores, self._published, self._changed = stores, published, changed
        self._seconds, self._now = seconds, now
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._headers = {names.LEASE_HEADER: lease}
        self._reports: dict[Key, tuple[str, TrainerReport]] = {}
        self.queue = WorkQueue()

    def report(self, key: Key) -> TrainerReport | None:
        """Return the last report of rank 0 of the job's pods; None when it is of a pod that is gone."""
        uid, report = self._reports.get(key, ("", None))
        return report if any(pod["metadata"]["uid"] == uid for pod in self._stores.pods.of_job(key)) else None

    def forget(self, key: Key) -> None:
        """Drop what is known of a job that is gone."""
        self._reports.pop(key, None)
        self.queue.discard(key)

    async def work(self) -> None:
        """Poll due jobs, for ever; several of these run at the same time."""
        connector = aiohttp.TCPConnector(limit=1, force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=self._timeout, headers=self._headers) as http:
            while True:
                key = await self.queue.get()
                try:
                    await self._poll(http, key)
                finally:
                    self.queue.done(key)

    async def _poll(self, http: aiohttp.ClientSession, key: Key) -> None:
        where = target(self._stores.jobs.get(key), self._stores.pods.of_job(key))
        if where is None:  # an event of the job or of its pods enqueues the key again
            return
        answer = await ask(http, where.url)
        self._take(key, where.pod_uid, answer)
        often = self._behind(key, answer.status)
        seconds = min(self._seconds, NEWS_SECONDS) if often else self._seconds
        self.queue.add_after(key, seconds * random.uniform(1 - JITTER, 1 + JITTER))

    def _behind(self, key: Key, status: TrainerStatus | None) -> bool:
        """Return whether running ranks have not applied the published control document yet."""
        control = self._published.get(key)
        if control is None or status is None or status.state != "running" or status.control_error:
            return False
        return control.document.generation > status.applied_generation

    def _take(self, key: Key, uid: str, answer: Answer) -> None:
        old_uid, old = self._reports.get(key, ("", None))
        if old_uid != uid:
            old = None
        # `since` is kept while failures follow each other, whatever their kinds are
        same_state = old is not None and (old.status is None) == (answer.status is None)
        since = old.since if old is not None and same_state else self._now()
        self._reports[key] = uid, TrainerReport(answer.status, answer.error, since, answer.failure)
        if old is None or (old.status, old.failure) != (answer.status, answer.failure):
            self._changed(key)


async def ask(http: aiohttp.ClientSession, url: str) -> Answer:
    """Return rank 0's status document, or why there is none."""
    try:
        async with http.get(url) as answer:
            if answer.status != 200:
                return Answer(None, "HttpError", f"HTTP {answer.status}")
            text = await _read(answer)
        if len(text) > MAX_DOCUMENT_BYTES:
            return Answer(None, "TooLong", f"status document of more than {MAX_DOCUMENT_BYTES} bytes")
        return Answer(TrainerStatus.model_validate_json(text))
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return Answer(None, "NoConnection", f"{type(error).__name__}: {error}".rstrip(": "))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        return Answer(None, "Malformed", f"malformed status document: {path}: {first['msg']}")


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body, cut soon after the limit: an unknown server may send without end."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > MAX_DOCUMENT_BYTES:
            break
    return bytes(body)
