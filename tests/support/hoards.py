"""Objects that a tenant may store to take the operator's memory: as large as the API server lets through."""

from heterotp_api import names
from support.gang import job

GROUPS = 18  # of a job
VALUES, CHARACTERS = 2_500, 30_000  # of each template


def large_job(name):
    """Return a valid suspended job of a megabyte and 45,000 values."""
    body = job(name, [(f"g{number}", 1) for number in range(GROUPS)], suspend=True)
    for group in body["spec"]["workerGroups"]:
        container = group["template"]["spec"]["containers"][0]
        container["ports"] = [{"containerPort": number} for number in range(1, VALUES // 2)]
        group["template"]["metadata"] = {"annotations": {"note": "x" * CHARACTERS}}
    return body


def refused_job(name):
    """Return a job of 1.2 MB whose template holds 600,000 values: the schema lets it through, the operator does not."""
    body = job(name, suspend=True)
    body["spec"]["workerGroups"][0]["template"]["spec"]["mine"] = [0] * 600_000
    return body


def marked(kind, name, **fields):
    """Return an object with the label by which the operator finds children, and 200 KB of annotations."""
    metadata = {"name": name, "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY}}
    metadata["annotations"] = {"note": "x" * 200_000}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}


def configmap(name):
    """Return a ConfigMap of a megabyte that looks like a child of a job."""
    return marked("ConfigMap", name, data={names.CONTROL_FILE: "x" * 800_000})


def gated_pod(name):
    """Return a pod that is never scheduled, costs nothing, and looks like a child of a job."""
    gates = [{"name": "mine.example/never"}]
    containers = [{"name": "c", "image": "i", "env": [{"name": f"V{number}"} for number in range(20_000)]}]
    return marked("Pod", name, spec={"containers": containers, "schedulingGates": gates})
