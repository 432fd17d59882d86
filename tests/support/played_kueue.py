"""Plays Kueue's manager on a real API server: what it writes into the status of a Workload."""

SINCE = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""}


def admit(kube, namespace, name):
    workload = kube.get("workloads", namespace, name)
    sets = [{"name": each["name"], "count": each["count"]} for each in workload["spec"]["podSets"]]
    told = [{"type": kind, "status": "True", "reason": kind, **SINCE} for kind in ("QuotaReserved", "Admitted")]
    told.append({"type": "Evicted", "status": "False", "reason": "QuotaReserved", **SINCE})
    set_status(kube, namespace, name, {"admission": {"clusterQueue": "all", "podSetAssignments": sets}}, told)


def set_status(kube, namespace, name, more, told):
    known = {each["type"]: each for each in conditions(kube, namespace, name).values()}
    known |= {each["type"]: each for each in told}
    path = kube.path("workloads", namespace, name) + "/status"
    body = {"status": {**more, "conditions": list(known.values())}}
    kube.request("PATCH", path, body, "application/merge-patch+json")


def conditions(kube, namespace, name):
    status = (kube.get("workloads", namespace, name) or {}).get("status") or {}
    return {each["type"]: each for each in status.get("conditions", ())}
