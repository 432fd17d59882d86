"""Collects what a decision about one job may read, from the stores and the last poll."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from heterotp_api import names

from heterotp_operator.queue import Key
from heterotp_operator.reconcile.control import Effective
from heterotp_operator.reconcile.failure import ended_badly
from heterotp_operator.reconcile.gang_secret import OperatorKey
from heterotp_operator.reconcile.kueue.admission import KueueRecords
from heterotp_operator.reconcile.observed import Observed, Refusal, terminating
from heterotp_operator.settings import Settings
from heterotp_operator.store import Json, Stores
from heterotp_operator.trainer_poller import TrainerPoller


@dataclass(frozen=True)
class PodAges:
    """For how many seconds each pod (by uid) is known to terminate, and to have ended badly."""

    terminating: dict[str, float]
    ended: dict[str, float]


@dataclass
class PodWatch:
    """When each pod of one job was first seen to terminate and to have ended badly, by a clock that never goes back."""

    _terminating: dict[str, float] = field(default_factory=dict)
    _ended: dict[str, float] = field(default_factory=dict)

    def look(self, pods: Iterable[Json], now: float) -> PodAges:
        """Return the ages at `now`; pods that are gone are dropped."""
        pods = list(pods)
        self._terminating = _first_seen(self._terminating, filter(terminating, pods), now)
        self._ended = _first_seen(self._ended, filter(ended_badly, pods), now)
        return PodAges(*({uid: now - at for uid, at in seen.items()} for seen in (self._terminating, self._ended)))


def _first_seen(before: Mapping[str, float], pods: Iterable[Json], now: float) -> dict[str, float]:
    return {uid: before.get(uid, now) for uid in (pod["metadata"]["uid"] for pod in pods)}


def observe(
    stores: Stores,
    poller: TrainerPoller,
    settings: Settings,
    key: Key,
    job: Json,
    now: float,
    *,
    control: Effective | None,
    podgroup: Json | None = None,
    kueue: KueueRecords | None = None,
    refusals: Mapping[str, Refusal] | None = None,
    operator_key: OperatorKey | None = None,
    accepted: Container[tuple[str, str]] = (),
) -> Observed:
    """Return one job with its children, and the policies and injections of its namespace; `now` is unix seconds.

    control: the control document that the job's last reconcile decided; None before it is decided.
    """
    return Observed(
        job=job,
        pods=tuple(stores.pods.of_job(key)),
        service=stores.services.get((key[0], names.service_name(key[1]))),
        configmap=stores.configmaps.get((key[0], names.control_name(key[1]))),
        podgroup=podgroup,
        kueue=kueue if kueue is not None else KueueRecords(),
        networkpolicy=stores.networkpolicies.get((key[0], names.network_policy_name(key[1]))),
        control=control,
        trainer=poller.report(key),
        now=now,
        settings=settings,
        policies=stores.policies.in_namespace(key[0]),
        injections=stores.injections.in_namespace(key[0]),
        refusals=dict(refusals or {}),
        progress=poller.progress(key),
        key=operator_key,
        accepted=accepted,
    )
