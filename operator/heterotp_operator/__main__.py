"""`python -m heterotp_operator`: metrics server, then the Lease, then watches and workers."""

import asyncio
import contextlib
import gc
import logging
import signal
import ssl
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import kopf
from kopf._core.engines.peering import Identity

from heterotp_operator import login
from heterotp_operator.certificate import Certificate
from heterotp_operator.cluster import INJECTIONS, JOBS, POLICIES, Cluster, Resource, connect
from heterotp_operator.events import Recorder
from heterotp_operator.handlers import build_registry, kopf_settings
from heterotp_operator.informers import Informers
from heterotp_operator.job_reconciler import SMALL_GANG, JobReconciler
from heterotp_operator.lease import LeaseGate, LeaseTimes
from heterotp_operator.metrics import Metrics, QueueMetrics
from heterotp_operator.own_key import OwnKey, UnusableKeyError
from heterotp_operator.pod_events import PodEvents
from heterotp_operator.published import PublishedControls
from heterotp_operator.queue import Key, WorkQueue
from heterotp_operator.queue_worker import QueueWorker, Reconcile
from heterotp_operator.resync import Resync
from heterotp_operator.server import Server
from heterotp_operator.settings import Settings, from_environment
from heterotp_operator.status_reconciler import StatusDecisions, StatusReconciler
from heterotp_operator.store import Stores
from heterotp_operator.supervision import supervise
from heterotp_operator.trainer_poller import TrainerPoller

KINDS = (JOBS, POLICIES, INJECTIONS)
# The API server lets objects through that are 10,000 levels deep. json must read them, else one job breaks the watch
# and the lists of all; a stack of 8 MiB is enough for twice as many. Behind the stores nothing is that deep.
RECURSION_LIMIT = 15_000
COLLECT_AFTER = 20_000, 10, 10  # objects made; younger collections: what is read as JSON has no cycles to find
SWITCH_SECONDS = 0.0005  # for which a thread with a large gang or a long answer may hold up the event loop
STATUS_WORKERS = 4  # of policies, and of injections
GANG_SETTLE_SECONDS = 0.1  # of a job with few pods
MOST_GANG_SETTLE_SECONDS = 0.5  # where there are many jobs
SETTLE_SECONDS = 1.0  # their status sums up many jobs: changes of one moment are written together
logger = logging.getLogger("heterotp_operator")


def gang_settle_seconds(pods: int, jobs: int = 1) -> float:
    """Return for how many seconds changes of a gang are gathered: a look at 16,384 pods takes half a second of all.

    Pods of one gang change together, e.g. when their images are there: one look sees it all. Of many jobs that begin at
    once the pods of each come up over seconds.
    """
    if pods == 0:
        return 0.0
    if pods > SMALL_GANG:
        return pods / 8192
    return min(max(GANG_SETTLE_SECONDS, jobs / 1000), MOST_GANG_SETTLE_SECONDS)


class Operator:
    """All parts of the process, connected once."""

    def __init__(self, settings: Settings, cluster: Cluster, metrics: Metrics) -> None:
        self.settings, self.cluster, self.metrics = settings, cluster, metrics
        self.stores = Stores()
        self.working = asyncio.Event()
        self.watches: dict[str, float] = {}
        self.trace = login.WatchTrace(metrics, self.watches)
        self.queues = {
            kind: WorkQueue(
                observer=QueueMetrics(metrics, kind.kind), workers=settings.workers if kind is JOBS else STATUS_WORKERS
            )
            for kind in KINDS
        }
        self.own_key = OwnKey(cluster, settings.lease_namespace, settings.key_secret_name)
        jobs = self.queues[JOBS]
        published = PublishedControls()
        self.poller = TrainerPoller(
            *(self.stores, published, jobs.add, settings.poll_seconds, settings.poll_timeout_seconds),
            settings.identity,
            metrics,
            settings.poll_workers,
            now=cluster.clock.now,
            key=self.own_key.get,
        )
        self.informers = Informers(self.stores, self._enqueue)
        self.resync = Resync(cluster, self.stores, self.informers, settings)
        self.server = Server(metrics, self.watches, self._depths, self._oldest_work_seconds, self._unready)
        times = LeaseTimes(settings.lease_seconds, settings.lease_renew_deadline_seconds, settings.lease_retry_seconds)
        self.lease = LeaseGate(cluster, settings.lease_namespace, settings.lease_name, settings.identity, times)
        recorder = Recorder(cluster, settings.identity)
        reconciler = JobReconciler(
            *(self.stores, self.informers, cluster, jobs, self.poller, recorder, metrics, settings, published),
            now=cluster.clock.now,
            key=self.own_key.get,
        )
        decisions = StatusDecisions(self.stores, self.poller, settings, published)
        shared, now = (cluster, recorder), cluster.clock.now
        policies = StatusReconciler(POLICIES, self.informers, decisions.policy, *shared, now)
        injections = StatusReconciler(INJECTIONS, self.informers, decisions.injection, *shared, now)
        self._workers = [
            *([self._worker(JOBS, reconciler.reconcile)] * settings.workers),
            *([self._worker(POLICIES, policies.reconcile)] * STATUS_WORKERS),
            *([self._worker(INJECTIONS, injections.reconcile)] * STATUS_WORKERS),
        ]

    def _worker(self, kind: Resource, reconcile: Reconcile) -> QueueWorker:
        return QueueWorker(kind.kind, self.queues[kind], self.metrics, reconcile)

    def _enqueue(self, kind: Resource, key: Key) -> None:
        if kind is not JOBS:
            self.queues[kind].add_after(key, SETTLE_SECONDS)
            return
        settle = gang_settle_seconds(self.stores.pods.count_of_job(key), len(self.stores.jobs))
        self.queues[JOBS].add_after(key, settle)
        self.poller.look(key)

    def _depths(self) -> list[tuple[str, int]]:
        return [(kind.kind, len(queue)) for kind, queue in self.queues.items()]

    def _oldest_work_seconds(self) -> float:
        return max(queue.oldest_work_seconds() for queue in self.queues.values())

    def _unready(self) -> str:
        return "" if self.own_key.key is not None else "the operator's own key is not read yet"

    async def prepare(self) -> None:
        """Return once this process has the operator's key and holds the Lease."""
        await self.own_key.read()
        await self.lease.acquire()

    async def log_in(self) -> kopf.AiohttpSession:
        """Return a fresh session for kopf: the projected token on disk may be a new one."""
        return login.session(await login.client_configuration(), self.trace)

    async def work(self) -> None:
        """Fill the stores, then run workers and pollers for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(supervise("resync", self.resync.run, self.metrics))
            await self.resync.synced.wait()
            for namespace in self.settings.namespaces or (None,):
                events = PodEvents(
                    *(self.cluster, self.informers, self.resync.list_pods, self.metrics, self.trace, namespace)
                )
                group.create_task(supervise("watch of pods", events.run, self.metrics))
            for worker in self._workers:
                group.create_task(supervise("worker", worker.work, self.metrics))
            for _ in range(self.settings.poll_workers):
                group.create_task(supervise("poller", self.poller.work, self.metrics))
            self.working.set()

    async def watch(self) -> None:
        """Run kopf until a signal stops it."""
        namespaces = self.settings.namespaces
        await kopf.operator(
            registry=build_registry(
                *(self.informers, self.metrics, self.log_in, self.resync.relisted),
                injections=self.settings.injections,
                network_policies=self.settings.network_peers is not None,
                kueue=self.settings.kueue,
            ),
            settings=kopf_settings(self.settings),
            clusterwide=not namespaces,
            namespaces=namespaces,
            identity=Identity(self.settings.identity),  # else kopf asks for a user name, and a pod's user has none
        )


async def _until_first(*jobs: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, cancel the rest, and raise what it raised."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def serve(settings: Settings, tls: ssl.SSLContext | None) -> None:
    """Run the operator until SIGTERM; standby until the Lease is held."""
    metrics = Metrics()
    cluster = await connect(
        await login.client_configuration(), metrics, settings.api_requests_per_second, settings.api_timeout_seconds
    )
    operator = Operator(settings, cluster, metrics)
    await operator.server.start(settings.metrics_host, settings.metrics_port, tls)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)  # kopf replaces these by its own
    try:
        await _until_first(operator.prepare(), _wait(stopped))
        if operator.lease.leading and not stopped.is_set():
            metrics.leader.set(1)
            await _lead(operator, stopped)
    finally:
        metrics.leader.set(0)
        await operator.lease.release()
        await operator.server.stop()
        await cluster.close()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _join(task: "asyncio.Task[None]") -> None:
    await asyncio.shield(task)


async def _lead(operator: Operator, stopped: asyncio.Event) -> None:
    """Work while the Lease is kept. kopf starts last: at its end it cancels every task made after its start."""
    background = [asyncio.create_task(operator.lease.keep()), asyncio.create_task(operator.work())]
    try:
        await _until_first(_wait(operator.working), _wait(stopped), *map(_join, background))
        if not stopped.is_set():
            # a signal that comes before kopf has its own handlers sets `stopped`
            await _until_first(operator.watch(), _wait(stopped), *map(_join, background))
    finally:
        for task in reversed(background):  # the workers end before the Lease is given back
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return what the HTTP server serves by, None for plain HTTP. Raises ValueError naming variable and file."""
    if not settings.metrics_tls_directory:
        return None
    try:
        return Certificate(Path(settings.metrics_tls_directory)).context
    except OSError as error:
        raise ValueError(f"HETEROTP_METRICS_TLS_DIRECTORY: {error}") from None


def main() -> int:
    """Read the settings and serve; return the exit code."""
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()  # what the imports made lives as long as the process: no collection walks it again
    gc.set_threshold(*COLLECT_AFTER)
    try:
        settings = from_environment()
        tls = tls_context(settings)
    except ValueError as error:
        print(f"heterotp-operator: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(settings, tls))
    except UnusableKeyError as error:
        print(f"heterotp-operator: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
