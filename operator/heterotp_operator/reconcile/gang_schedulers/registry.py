"""All gang schedulers by runPolicy.gang.provider: the one list, which the pods, the PodGroup and the client read."""

from heterotp_api.run_policy import Gang

from heterotp_operator.reconcile.actions import Body
from heterotp_operator.reconcile.gang_schedulers.coscheduling import COSCHEDULING
from heterotp_operator.reconcile.gang_schedulers.kueue import KUEUE
from heterotp_operator.reconcile.gang_schedulers.scheduler import GangMember, GangScheduler
from heterotp_operator.reconcile.gang_schedulers.volcano import VOLCANO

SCHEDULERS: dict[str, GangScheduler] = {"kueue": KUEUE, "volcano": VOLCANO, "coscheduling": COSCHEDULING}


def set_priority_class(gang: Gang, body: Body) -> None:
    """Set the priority class of a pod whose template names none."""
    if gang.priority_class_name:
        body["spec"].setdefault("priorityClassName", gang.priority_class_name)


def join_gang(gang: Gang, member: GangMember) -> None:
    """Mark a pod as a member of its job's gang; without a gang scheduler only its priority class is set."""
    set_priority_class(gang, member.body)
    if (scheduler := SCHEDULERS.get(gang.provider)) is not None:
        scheduler.mark_pod(gang, member)


def pod_group(gang: Gang, metadata: Body, pods: int) -> Body | None:
    """Return the PodGroup that the gang's scheduler waits for; None where it needs none."""
    scheduler = SCHEDULERS.get(gang.provider)
    if scheduler is None or not scheduler.pod_group_api:
        return None
    spec = scheduler.pod_group_spec(gang, pods)
    return {"apiVersion": scheduler.pod_group_api, "kind": "PodGroup", "metadata": metadata, "spec": spec}
