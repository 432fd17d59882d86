"""What a pod of an admitted job gets: the node labels and tolerations of its flavors, and the marks of a topology."""

from typing import Any

from heterotp_api import names

from heterotp_operator.reconcile.kueue.admission import Body, KueueRecords, assignments, updates
from heterotp_operator.reconcile.kueue.own_names import PREFIX, without_kueues
from heterotp_operator.reconcile.kueue.topology import ANNOTATIONS, UNCONSTRAINED, topology_request

POD_SET = "kueue.x-k8s.io/podset"
WORKLOAD = "kueue.x-k8s.io/workload"
TOPOLOGY_GATE = "kueue.x-k8s.io/topology"


def mark_admitted(records: KueueRecords, job: str, group: str, body: Body, template: Body) -> None:
    """Complete a pod by what Kueue assigned; what stands below `spec` is the template's: it is replaced."""
    metadata, spec = body["metadata"], body["spec"]
    metadata["labels"] = without_kueues(metadata["labels"])
    metadata["annotations"] = _annotations(metadata.get("annotations") or {})
    assigned = assignments(records.workload).get(group, {})
    for name in sorted(set((assigned.get("flavors") or {}).values())):
        flavor = records.flavors.get(name, {})
        _place(spec, flavor.get("nodeLabels") or {}, flavor.get("tolerations") or [])
    for update in updates(records.workload, group):
        _place(spec, update.get("nodeSelector") or {}, update.get("tolerations") or [])
        metadata["labels"] = {**(update.get("labels") or {}), **metadata["labels"]}
        metadata["annotations"] = {**(update.get("annotations") or {}), **metadata["annotations"]}
    metadata["labels"][POD_SET] = group
    metadata["annotations"][WORKLOAD] = names.workload_name(job)
    if assigned.get("topologyAssignment") or assigned.get("delayedTopologyRequest"):
        if topology_request(template) is None:
            metadata["annotations"][UNCONSTRAINED] = "true"
        spec["schedulingGates"] = [*(spec.get("schedulingGates") or []), {"name": TOPOLOGY_GATE}]


def _annotations(given: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key in ANNOTATIONS or not key.startswith(PREFIX)}


def _place(spec: Body, labels: Body, tolerations: list[Any]) -> None:
    if labels:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **labels}
    have = spec.get("tolerations") or []
    if new := [each for each in tolerations if each not in have]:
        spec["tolerations"] = [*have, *new]
