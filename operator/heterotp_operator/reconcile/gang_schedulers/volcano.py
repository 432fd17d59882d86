"""Volcano: a PodGroup of the job's name, and Volcano's own scheduler."""

from heterotp_api.run_policy import Gang

from heterotp_operator.reconcile.actions import Body
from heterotp_operator.reconcile.gang_schedulers.scheduler import GangMember, GangScheduler


def mark_pod(gang: Gang, member: GangMember) -> None:
    """Name the PodGroup and the scheduler."""
    member.annotate("scheduling.k8s.io/group-name", member.job)
    member.body["spec"].setdefault("schedulerName", "volcano")


def pod_group_spec(gang: Gang, pods: int) -> Body:
    """Return the spec of a PodGroup of so many pods."""
    spec: Body = {"minMember": pods}
    if gang.queue:
        spec["queue"] = gang.queue
    if gang.priority_class_name:
        spec["priorityClassName"] = gang.priority_class_name
    return spec


VOLCANO = GangScheduler(mark_pod, "scheduling.volcano.sh/v1beta1", pod_group_spec)
