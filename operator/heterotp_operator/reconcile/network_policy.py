"""The NetworkPolicy of a job: its gang's pods, the operator and Prometheus may connect to them, nobody else."""

from heterotp_api import names

from heterotp_operator.reconcile.actions import Action, ApplyNetworkPolicy, DeleteNetworkPolicy
from heterotp_operator.reconcile.observed import Body, Observed, owner_uid
from heterotp_operator.reconcile.pods import child_metadata


def network_policy_body(observed: Observed) -> Body | None:
    """Return the wanted NetworkPolicy; None where jobs have none."""
    peers = observed.settings.network_peers
    if peers is None or not peers.policies:
        return None
    gang = {"matchLabels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_JOB: observed.name}}
    first = observed.spec.metrics.port
    most = max(place.processes for place in observed.places)
    ingress: list[Body] = [  # gloo and NCCL use the rendezvous port and then ephemeral ports: all ports within the gang
        {"from": [{"podSelector": gang}]},
        {"from": peers.operator, "ports": [_tcp(first)]},  # the status of rank 0
    ]
    if peers.scrapers:  # an empty list would let everybody in
        ingress.append({"from": peers.scrapers, "ports": [_tcp(first + local) for local in range(most)]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": child_metadata(observed, names.network_policy_name(observed.name)),
        "spec": {"podSelector": gang, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def _tcp(port: int) -> Body:
    return {"protocol": "TCP", "port": port}


def ensure_network_policy(observed: Observed) -> tuple[Action, ...]:
    """Return the action that makes, corrects or removes the NetworkPolicy of a job; none where all is well.

    It is compared as a whole: every field that somebody adds to a selector or a peer changes who is let in.
    """
    wanted, live = network_policy_body(observed), observed.networkpolicy
    if wanted is None:
        return remove_network_policy(observed)
    if live is not None and _is_as_wanted(live, wanted):
        return ()
    return (ApplyNetworkPolicy(wanted),)


def remove_network_policy(observed: Observed) -> tuple[Action, ...]:
    """Return the action that removes the job's own NetworkPolicy where jobs have none any more."""
    live, peers = observed.networkpolicy, observed.settings.network_peers
    if live is None or peers is None or peers.policies or owner_uid(live) != observed.uid:
        return ()
    return (DeleteNetworkPolicy(str(live["metadata"]["name"]), str(live["metadata"]["uid"])),)


def _is_as_wanted(live: Body, wanted: Body) -> bool:
    metadata = live["metadata"]
    if metadata.get("deletionTimestamp") or owner_uid(live) != owner_uid(wanted):
        return False
    labelled = wanted["metadata"]["labels"].items() <= (metadata.get("labels") or {}).items()
    return labelled and bool(live.get("spec") == wanted["spec"])
