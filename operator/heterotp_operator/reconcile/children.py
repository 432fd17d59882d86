"""NetworkPolicy, Service, control document and PodGroup: made when missing, corrected when they were changed."""

from typing import Any

from heterotp_api import names

from heterotp_operator.reconcile.actions import Action, ApplyConfigMap, ApplyPodGroup, CreateService, TouchPod
from heterotp_operator.reconcile.control_text import control_text, kept_text
from heterotp_operator.reconcile.gang_schedulers.registry import pod_group
from heterotp_operator.reconcile.network_policy import ensure_network_policy
from heterotp_operator.reconcile.observed import Body, Observed, ended, first_rank_of, terminating
from heterotp_operator.reconcile.pods import child_metadata


def service_body(observed: Observed, attempt: int) -> Body:
    """Return the headless Service that names the ranks of one attempt before they are ready."""
    spec = observed.spec
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(observed, names.service_name(observed.name)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_JOB: observed.name, names.LABEL_ATTEMPT: str(attempt)},
            "ports": [
                {"name": "rendezvous", "port": spec.rendezvous.port},
                {"name": "metrics", "port": spec.metrics.port},
            ],
        },
    }


def configmap_body(observed: Observed) -> Body:
    """Return the ConfigMap that rank 0's pod mounts."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(observed, names.control_name(observed.name)),
        "data": {names.CONTROL_FILE: control_text(observed.effective.document)},
    }


def ensure_children(observed: Observed, attempt: int) -> tuple[Action, ...]:
    """Return the actions that bring the children of an attempt to their wanted form."""
    actions: list[Action] = [*ensure_network_policy(observed)]  # first: no pod is made without it
    service, configmap = service_body(observed, attempt), configmap_body(observed)
    same_selector = ((observed.service or {}).get("spec") or {}).get("selector") == service["spec"]["selector"]
    if not (_contains(observed.service, service, "spec") and same_selector):
        actions.append(CreateService(service))
    kept = {**configmap, "data": {name: kept_text(text) for name, text in configmap["data"].items()}}
    if not (_contains(observed.configmap, configmap, "data") or _contains(observed.configmap, kept, "data")):
        actions.append(ApplyConfigMap(configmap))
    actions += _touch(observed)
    metadata = child_metadata(observed, observed.name)
    group = pod_group(observed.spec.run_policy.gang, metadata, len(observed.places))
    if group is not None and not _contains(observed.podgroup, group, "spec"):
        actions.append(ApplyPodGroup(group))
    return tuple(actions)


def _touch(observed: Observed) -> tuple[Action, ...]:
    """Annotate rank 0's pod when the control document is newer than its annotation, which wakes its kubelet."""
    generation = observed.effective.document.generation
    for pod in observed.current:
        annotated = pod["metadata"].get("annotations", {}).get(names.ANNOTATION_CONTROL, "1")
        if first_rank_of(pod) == 0 and annotated != str(generation) and not (ended(pod) or terminating(pod)):
            return (TouchPod(pod["metadata"]["name"], pod["metadata"]["uid"], generation),)
    return ()


def _contains(live: Body | None, wanted: Body, part: str) -> bool:
    """Return whether a live child of this job contains all that is wanted (servers add defaults)."""
    if live is None or live["metadata"].get("deletionTimestamp"):
        return False
    owners = {reference["uid"] for reference in live["metadata"].get("ownerReferences") or ()}
    ours = {reference["uid"] for reference in wanted["metadata"]["ownerReferences"]}
    labels = _within(wanted["metadata"]["labels"], live["metadata"].get("labels"))
    return ours <= owners and labels and _within(wanted[part], live.get(part))


def _within(wanted: Any, live: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(_within(value, live.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        same_length = isinstance(live, list) and len(live) == len(wanted)
        return same_length and all(_within(a, b) for a, b in zip(wanted, live, strict=True))
    return bool(wanted == live)
