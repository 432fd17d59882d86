"""Collects what a decision about one job may read, from the stores and the last poll."""

from collections.abc import Mapping

from heterotp_api import names

from heterotp_operator.queue import Key
from heterotp_operator.reconcile.control import Effective
from heterotp_operator.reconcile.observed import Observed, Refusal
from heterotp_operator.settings import Settings
from heterotp_operator.store import Json, Stores
from heterotp_operator.trainer_poller import TrainerPoller


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
    refusals: Mapping[str, Refusal] | None = None,
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
        control=control,
        trainer=poller.report(key),
        now=now,
        settings=settings,
        policies=stores.policies.in_namespace(key[0]),
        injections=stores.injections.in_namespace(key[0]),
        refusals=dict(refusals or {}),
    )
