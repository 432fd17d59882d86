"""The Workload of a job: one pod set for each worker group."""

import hashlib
import json

from heterotp_api import names

from heterotp_operator.reconcile.kueue.own_names import without_kueues
from heterotp_operator.reconcile.kueue.topology import topology_request
from heterotp_operator.reconcile.observed import Body, Observed
from heterotp_operator.reconcile.pods import child_metadata

API = "kueue.x-k8s.io/v1beta2"
NOT_COUNTED = ("env", "command", "args", "volumeMounts")  # of a container: Kueue reads requests, and images may be long


def workload_body(observed: Observed) -> Body:
    """Return the Workload that the job asks for."""
    spec = workload_spec(observed)
    metadata = child_metadata(observed, names.workload_name(observed.name))
    metadata["annotations"] = {names.ANNOTATION_WORKLOAD: spec_hash(spec)}
    return {"apiVersion": API, "kind": "Workload", "metadata": metadata, "spec": spec}


def workload_spec(observed: Observed) -> Body:
    """Return the spec of the Workload; `active` is left to administrators."""
    gang = observed.asked.run_policy.gang
    spec: Body = {"queueName": gang.queue, "podSets": pod_sets(observed), "priority": observed.kueue.priority}
    if (reference := priority_class(observed)) is not None:
        spec["priorityClassRef"] = reference
    return spec


def priority_class(observed: Observed) -> Body | None:
    """Return the class of the Workload's priority: Kueue's own, else that of the pods."""
    gang = observed.asked.run_policy.gang
    if gang.workload_priority_class_name:
        return {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": gang.workload_priority_class_name}
    if gang.priority_class_name:
        return {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": gang.priority_class_name}
    return None


def pod_sets(observed: Observed) -> list[Body]:
    """Return the pod sets, in the order of the worker groups."""
    sets: list[Body] = []
    for group, template in zip(observed.asked.worker_groups, observed.templates, strict=True):
        each: Body = {"name": group.name, "count": group.pods, "template": _template(observed, template)}
        if group.min_pods is not None and group.min_pods < group.pods:
            each["minCount"] = group.min_pods
        if (request := topology_request(template)) is not None:
            each["topologyRequest"] = request
        sets.append(each)
    return sets


def _template(observed: Observed, template: Body) -> Body:
    """Return what Kueue reads of a template: requests, node selectors, tolerations, labels."""
    spec: Body = {key: value for key, value in (template.get("spec") or {}).items() if key != "volumes"}
    containers = spec.get("containers") or []
    if not any(each.get("name") == names.CONTAINER for each in containers):
        containers = [{"name": names.CONTAINER}, *containers]
    image = observed.settings.trainer_image
    spec["containers"] = [_container(each, image) for each in containers]
    if spec.get("initContainers"):
        spec["initContainers"] = [_container(each, image) for each in spec["initContainers"]]
    spec["restartPolicy"] = "Never"
    if observed.asked.run_policy.gang.priority_class_name:
        spec.setdefault("priorityClassName", observed.asked.run_policy.gang.priority_class_name)
    labels = without_kueues((template.get("metadata") or {}).get("labels") or {})
    return {"metadata": {"labels": labels}, "spec": spec}


def _container(container: Body, image: str) -> Body:
    kept = {key: value for key, value in container.items() if key not in NOT_COUNTED}
    kept.setdefault("image", image)
    return kept


def spec_hash(spec: Body) -> str:
    """Return a hash of a spec without the number of its priority, which Kueue keeps up to date itself."""
    compared = {key: value for key, value in spec.items() if key != "priority"}
    return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()[:10]


def is_as_asked(observed: Observed) -> bool:
    """Return whether the live Workload was made from the present spec of the job."""
    workload = observed.kueue.workload
    given = ((workload or {}).get("metadata") or {}).get("annotations") or {}
    return bool(given.get(names.ANNOTATION_WORKLOAD) == spec_hash(workload_spec(observed)))
