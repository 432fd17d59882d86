"""Gang scheduling: what Kueue, Volcano and the coscheduling plugin want to see on pods and beside them."""

from heterotp_api.run_policy import Gang

from heterotp_operator.reconcile.observed import Body

VOLCANO = "scheduling.volcano.sh/v1beta1"
COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"


def join_gang(gang: Gang, job: str, attempt: int, pods: int, pod: Body) -> None:
    """Mark a pod as a member of its job's gang."""
    metadata, spec = pod["metadata"], pod["spec"]
    if gang.priority_class_name:
        spec.setdefault("priorityClassName", gang.priority_class_name)
    if gang.provider == "kueue":
        metadata["labels"] |= {
            "kueue.x-k8s.io/queue-name": str(gang.queue),
            "kueue.x-k8s.io/pod-group-name": f"{job}-{attempt}",  # a group that ended is not admitted again
            "kueue.x-k8s.io/managed": "true",
        }
        metadata.setdefault("annotations", {})["kueue.x-k8s.io/pod-group-total-count"] = str(pods)
        spec.setdefault("schedulingGates", []).append({"name": "kueue.x-k8s.io/admission"})
    elif gang.provider == "volcano":
        metadata.setdefault("annotations", {})["scheduling.k8s.io/group-name"] = job
        spec.setdefault("schedulerName", "volcano")
    elif gang.provider == "coscheduling":
        metadata["labels"]["scheduling.x-k8s.io/pod-group"] = job
        spec.setdefault("schedulerName", "scheduler-plugins-scheduler")


def pod_group(gang: Gang, metadata: Body, pods: int) -> Body | None:
    """Return the PodGroup that the provider's scheduler waits for; None where it needs none."""
    if gang.provider == "volcano":
        spec: Body = {"minMember": pods}
        if gang.queue:
            spec["queue"] = gang.queue
        if gang.priority_class_name:
            spec["priorityClassName"] = gang.priority_class_name
        return {"apiVersion": VOLCANO, "kind": "PodGroup", "metadata": metadata, "spec": spec}
    if gang.provider == "coscheduling":
        spec = {"minMember": pods}
        if gang.schedule_timeout_seconds:
            spec["scheduleTimeoutSeconds"] = gang.schedule_timeout_seconds
        return {"apiVersion": COSCHEDULING, "kind": "PodGroup", "metadata": metadata, "spec": spec}
    return None
