"""Plays Kueue in a simulated world: what it writes into the status of a Workload."""


def set_condition(world, kind, holds, reason="Because"):
    conditions = world.objects["Workload"]["status"].setdefault("conditions", [])
    conditions[:] = [each for each in conditions if each["type"] != kind]
    told = {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": f"{kind} {holds}"}
    conditions.append(told | {"lastTransitionTime": "2026-01-01T00:00:00Z"})


def admit(world, flavor=None, **counts):
    workload = world.objects["Workload"]
    sets = [
        {"name": each["name"], "count": counts.get(each["name"], each["count"])}
        | ({"flavors": {"cpu": flavor}} if flavor else {})
        for each in workload["spec"]["podSets"]
    ]
    workload["status"]["admission"] = {"clusterQueue": "all", "podSetAssignments": sets}
    for kind, holds in (("QuotaReserved", True), ("Admitted", True), ("Evicted", False)):
        set_condition(world, kind, holds)
