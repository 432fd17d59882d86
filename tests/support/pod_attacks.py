"""Templates that ask for more of a node than a rank needs, and ones that only look so."""

from support.reconcile_world import manifest

TOKEN = {"projected": {"sources": [{"configMap": {"name": "c"}}, {"serviceAccountToken": {"path": "t"}}]}}
PRIVILEGED = {"securityContext": {"privileged": True}}
REFUSED = {  # template, a part of the message
    "host network": ({"hostNetwork": True}, "hostNetwork"),
    "host processes": ({"hostPID": True}, "hostPID"),
    "host memory": ({"hostIPC": True}, "hostIPC"),
    "host path": ({"volumes": [{"name": "d", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/"}}]}, "hostPath"),
    "token": ({"volumes": [{"name": "t", **TOKEN}]}, "serviceAccountToken"),
    "privileged": ({"containers": [{"name": "trainer", **PRIVILEGED}]}, "privileged"),
    "privileged sidecar": ({"containers": [{"name": "trainer"}, {"name": "s", **PRIVILEGED}]}, "privileged"),
    "privileged init container": ({"initContainers": [{"name": "i", **PRIVILEGED}]}, "privileged"),
}
ACCEPTED = {
    "nothing": {},
    "nulls": {"containers": None, "initContainers": None, "volumes": None, "hostNetwork": None},
    "denials": {
        "hostNetwork": False,
        "hostPID": False,
        "containers": [{"name": "trainer", "securityContext": {"privileged": False}}, {"name": "s"}],
        "initContainers": [{"name": "i", "securityContext": None}],
    },
    "harmless volumes": {
        "volumes": [
            {"name": "a", "emptyDir": {}},
            {"name": "b", "projected": {"sources": [{"configMap": {"name": "c"}}]}},
            {"name": "c", "projected": {}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "d"}},
        ]
    },
}


def attacking_job(pod, name="attack"):
    """Return a job whose second group has the pod spec; the first one has no template."""
    body = manifest(groups=(("a", 1, 1), ("b", 1, 1)))
    groups = body["spec"]["workerGroups"]
    groups[0].pop("template", None)
    groups[1]["template"] = {"spec": pod}
    return {**body, "metadata": {"name": name}}
