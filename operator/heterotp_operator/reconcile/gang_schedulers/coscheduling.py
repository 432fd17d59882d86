"""The coscheduling plugin of scheduler-plugins: a PodGroup of the job's name."""

from heterotp_api.run_policy import Gang

from heterotp_operator.reconcile.actions import Body
from heterotp_operator.reconcile.gang_schedulers.scheduler import GangMember, GangScheduler


def mark_pod(gang: Gang, member: GangMember) -> None:
    """Name the PodGroup and the scheduler."""
    member.label("scheduling.x-k8s.io/pod-group", member.job)
    member.body["spec"].setdefault("schedulerName", "scheduler-plugins-scheduler")


def pod_group_spec(gang: Gang, pods: int) -> Body:
    """Return the spec of a PodGroup of so many pods."""
    spec: Body = {"minMember": pods}
    if gang.schedule_timeout_seconds:
        spec["scheduleTimeoutSeconds"] = gang.schedule_timeout_seconds
    return spec


COSCHEDULING = GangScheduler(mark_pod, "scheduling.x-k8s.io/v1alpha1", pod_group_spec)
