"""Kueue, with admission PodGroup: plain pods, which wait behind a scheduling gate until all of them are admitted."""

from heterotp_api.run_policy import Gang

from heterotp_operator.reconcile.gang_schedulers.scheduler import GangMember, GangScheduler


def mark_pod(gang: Gang, member: GangMember) -> None:
    """Name queue and group, and close the gate that Kueue opens."""
    member.label("kueue.x-k8s.io/queue-name", str(gang.queue))
    member.label("kueue.x-k8s.io/pod-group-name", f"{member.job}-{member.attempt}")  # an ended group stays ended
    member.label("kueue.x-k8s.io/managed", "true")
    member.annotate("kueue.x-k8s.io/pod-group-total-count", str(member.pods))
    spec = member.body["spec"]
    spec["schedulingGates"] = [*(spec.get("schedulingGates") or []), {"name": "kueue.x-k8s.io/admission"}]


KUEUE = GangScheduler(mark_pod)
