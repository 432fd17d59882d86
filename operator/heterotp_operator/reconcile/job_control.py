"""The control document of an observed job."""

from heterotp_operator.reconcile.control import Effective, Sources, effective
from heterotp_operator.reconcile.observed import Observed


def decide_control(seen: Observed) -> Effective | None:
    """Return what the job's ranks shall follow; None where its spec is invalid. `seen.control` is not read."""
    if not seen.is_valid:
        return None
    lease = seen.settings.injection_lease_seconds
    nodes = seen.nodes if seen.injections else {}  # the nodes of 16,384 ranks take their time
    return effective(Sources(seen.job, seen.spec, nodes, seen.policies, seen.injections, seen.configmap, lease))
