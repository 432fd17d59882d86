"""One reconcile of a job: observe the stores, plan, execute. All decisions are made in reconcile/."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from heterotp_operator.accepted_templates import AcceptedTemplates
from heterotp_operator.apply import Applier, Refusals
from heterotp_operator.cluster import Cluster
from heterotp_operator.events import Recorder
from heterotp_operator.informers import Informers
from heterotp_operator.kueue_records import kueue_records
from heterotp_operator.metrics import Metrics
from heterotp_operator.observe import PodWatch, observe
from heterotp_operator.podgroup_records import podgroup_of
from heterotp_operator.published import PublishedControls
from heterotp_operator.queue import Key, WorkQueue
from heterotp_operator.reconcile.actions import ApplyConfigMap, CreatePod, Decision, TouchPod
from heterotp_operator.reconcile.job_control import decide_control
from heterotp_operator.reconcile.observed import Observed
from heterotp_operator.reconcile.plan import plan
from heterotp_operator.reconcile.refresh import refresh_seconds
from heterotp_operator.renewals import KeyReader
from heterotp_operator.settings import Settings
from heterotp_operator.status_throttle import alike_but_numbers, due, due_later, patience
from heterotp_operator.store import Json, Stores
from heterotp_operator.trainer_poller import TrainerPoller

SMALL_GANG = 256  # pods; a look at more is not for the event loop
REFRESH_SECONDS = 1.0  # in which a kubelet that was woken mounts the new control document


@dataclass
class _Memory:
    """What is kept between reconciles of one job; losing it costs one more call, or a later deletion by force."""

    uid: str
    attempt: int = -1
    refusals: Refusals = field(default_factory=dict)
    written_at: float = float("-inf")
    pods: PodWatch = field(default_factory=PodWatch)
    waiting_since: float | None = None  # since when a status that is due waits for what comes next


def _look(seen: Observed, watch: PodWatch, now: float) -> tuple[Observed, Decision]:
    """Return what was observed, complete, and the decision; records of the stores are replaced, never changed."""
    ages = watch.look(seen.pods, now)
    aged = replace(seen, terminating_for=ages.terminating, ended_for=ages.ended)
    observed = aged.with_control(decide_control(aged))
    return observed, plan(observed)


class JobReconciler:
    """Observes, plans and acts for one job at a time."""

    def __init__(
        self,
        stores: Stores,
        informers: Informers,
        cluster: Cluster,
        queue: WorkQueue,
        poller: TrainerPoller,
        recorder: Recorder,
        metrics: Metrics,
        settings: Settings,
        published: PublishedControls,
        now: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        key: KeyReader = lambda: None,
    ) -> None:
        """key: the operator's own, once it is read."""
        self._stores, self._informers, self._cluster, self._queue = stores, informers, cluster, queue
        self._monotonic = monotonic
        self._poller = poller
        self._recorder, self._metrics, self._settings, self._now = recorder, metrics, settings, now
        self._memories: dict[Key, _Memory] = {}
        self._published, self._key = published, key
        self._accepted = AcceptedTemplates()

    async def reconcile(self, key: Key) -> float | None:
        """Observe, plan and apply one job; return the seconds after which to look again. Raises ApiError."""
        for _ in range(2):  # a refusal changes what is observed, and the status shows it at once
            job = self._stores.jobs.get(key)
            if job is None:
                self._forget(key)
                return None
            memory = self._memory(key, job)
            observed, decision = await self._decide(key, job, memory)
            applier = Applier(self._cluster, self._stores, job, memory.refusals)
            applier.progress = partial(self._queue.progressed, key)
            applier.beside_others = partial(self._queue.beside_others, key)
            try:
                accepted = await applier.run(decision.actions)
            finally:
                if applier.changed:
                    self._queue.add(key)
            if any(isinstance(action, CreatePod) for action in decision.actions):
                self._accepted.note(*observed.template_key, accepted)
            if accepted:
                break
        self._publish(key, observed, decision)
        await self._report(key, applier, decision, memory)
        # an answer may be the first to show another label: enqueue also what selected the job before
        self._informers.enqueue_dependents(job, self._stores.jobs.get(key))
        return decision.requeue_after

    async def _decide(self, key: Key, job: Json, memory: _Memory) -> tuple[Observed, Decision]:
        """Observe and decide; the look at a large gang takes its time in a thread, where no other job waits for it."""
        podgroup = await podgroup_of(self._cluster, self._stores.podgroups, key, job)
        seen = observe(
            *(self._stores, self._poller, self._settings, key, job, self._now()),
            control=None,
            podgroup=podgroup,
            kueue=await kueue_records(self._cluster, self._stores, key, job, self._settings.kueue),
            refusals=memory.refusals,
            operator_key=self._key(),
            accepted=self._accepted,
        )
        look = partial(_look, seen, memory.pods, self._monotonic())
        return look() if len(seen.pods) <= SMALL_GANG else await asyncio.to_thread(look)

    def _publish(self, key: Key, observed: Observed, decision: Decision) -> None:
        """Record and count the control document, and poll rank 0 as soon as it can have received it."""
        if observed.control is not None:
            self._published.record(key, observed.control)
        if any(isinstance(action, ApplyConfigMap) for action in decision.actions):
            strategy = ((decision.status or {}).get("balancing") or {}).get("strategy", "None")
            self._metrics.published.labels(key[0], strategy).inc()
        if any(isinstance(action, TouchPod) for action in decision.actions):
            self._poller.queue.add_after(key, REFRESH_SECONDS)

    async def _report(self, key: Key, applier: Applier, decision: Decision, memory: _Memory) -> None:
        """Write the status if it is worth a write, then the events."""
        job = self._stores.jobs.get(key) or applier.job
        if decision.status is not None and self._is_due(key, job["status"], decision.status, memory):
            await applier.write_status(decision.status)
            self._metrics.observe_transition(applier.job, {**job["status"], **decision.status}, self._now())
            memory.written_at, memory.waiting_since = self._monotonic(), None
            if applier.changed and not alike_but_numbers(job, self._stores.jobs.get(key) or job):
                self._queue.add(key)
        self._metrics.observe_job(key, job["spec"], decision.status or job["status"])
        for event in decision.events:
            await self._recorder.record(applier.job, event)

    def _is_due(self, key: Key, written: Json, wanted: Json, memory: _Memory) -> bool:
        """Return whether to write the status now; one that waits is looked at again in time."""
        now, jobs = self._monotonic(), len(self._stores.jobs)
        refresh = refresh_seconds(jobs)
        age = now - memory.written_at
        if not due(written, wanted, age, refresh):
            memory.waiting_since = None
            if (later := due_later(written, wanted, age, refresh)) is not None:
                self._queue.add_after(key, later)
            return False
        if memory.waiting_since is None:
            memory.waiting_since = now
        left = memory.waiting_since + patience(written, wanted, jobs, refresh) - now
        if left > 0:
            self._queue.add_after(key, left)
        return left <= 0

    def _memory(self, key: Key, job: Json) -> _Memory:
        uid, attempt = job["metadata"]["uid"], job["status"].get("attempt", -1)
        memory = self._memories.get(key)
        if memory is None or memory.uid != uid:
            memory = self._memories[key] = _Memory(uid, attempt)
        if memory.attempt != attempt:
            memory.attempt = attempt
            memory.refusals.clear()
        return memory

    def _forget(self, key: Key) -> None:
        self._memories.pop(key, None)
        self._published.forget(key)
        self._poller.forget(key)
        self._queue.discard(key)
        self._metrics.forget_job(key)
