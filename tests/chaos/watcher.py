"""Watches all that counts straight at the API server, and writes what it sees into the history."""

import json

from chaos.actor import Actor
from support.kube import Kube

PLURALS = (
    *("heterotpjobs", "pods", "services", "configmaps", "networkpolicies"),
    *("events", "balancingpolicies", "stragglerinjections"),
)
OURS = ("HeteroTPJob", "BalancingPolicy", "StragglerInjection")  # whose events are recorded
READ_SECONDS = 5.0
GONE = 410


def trimmed(plural, body):
    """Return the fields of an object that the checker reads."""
    metadata, status = body["metadata"], body.get("status") or {}
    owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), {})
    found = {"uid": metadata["uid"], "name": metadata["name"], "job": owner.get("uid", "")}
    found |= {"generation": metadata.get("generation"), "version": int(metadata["resourceVersion"])}
    if metadata.get("deletionTimestamp"):
        found["deleting"] = True
    if plural == "events":
        return found | {"job": body["involvedObject"].get("uid", ""), "reason": body.get("reason")}
    if plural == "pods":
        labels = metadata.get("labels") or {}
        return found | {"attempt": _number(labels, "attempt"), "phase": status.get("phase")} | _node(body)
    kept = ("phase", "attempt", "restarts", "waitingFor", "observedGeneration")
    found |= {key: status[key] for key in kept if key in status}
    if plural == "heterotpjobs":
        found["suspend"] = bool((body["spec"].get("runPolicy") or {}).get("suspend"))
        conditions = [each for each in status.get("conditions") or () if _true(each)]
        found["conditions"] = {each["type"]: each.get("reason") for each in conditions}
        # whether its ranks report something besides their progress: of a checkpoint that cannot be written
        found["says"] = any(each["type"] == "Running" and each.get("message") for each in conditions)
    return found


def _true(condition):
    return condition["status"] == "True"


def _node(pod):
    return {"node": pod["spec"].get("nodeName")}


def _number(labels, ending):
    found = next((value for name, value in labels.items() if name.endswith(f"/{ending}")), "")
    return int(found) if found.isdecimal() else -1


class Watcher(Actor):
    """Watches one resource of a namespace; after a gap it lists again and says so."""

    every = 0.1

    def __init__(self, kubeconfig, namespace, plural, recorder):
        super().__init__()
        self._kube, self._plural, self._recorder = Kube(kubeconfig), plural, recorder
        self._path = self._kube.path(plural, namespace)
        self._version = None

    def step(self):
        if self._version is None:
            self._list()
        self._watch()

    def stop(self):
        super().stop()
        self._kube.close()

    def _list(self):
        answer = self._kube.request("GET", self._path)
        for body in answer["items"]:
            self._record("LISTED", body)
        uids = [body["metadata"]["uid"] for body in answer["items"]]
        self._recorder.write("listed", plural=self._plural, uids=uids)
        self._version = answer["metadata"]["resourceVersion"]

    def _watch(self):
        connection = self._kube._connect()
        connection.timeout = READ_SECONDS
        try:
            query = f"?watch=true&resourceVersion={self._version}&timeoutSeconds={READ_SECONDS:.0f}"
            headers = {"Authorization": f"Bearer {self._kube.token}"} if self._kube.token else {}
            connection.request("GET", self._path + query, headers=headers)
            answer = connection.getresponse()
            while not self._stopped.is_set() and (line := answer.readline()):
                self._take(json.loads(line))
        finally:
            connection.close()

    def _take(self, event):
        if event.get("type") in (None, "ERROR"):
            self._version = None  # expired: the next step lists again
            return
        self._version = event["object"]["metadata"]["resourceVersion"]
        self._record(event["type"], event["object"])

    def _record(self, kind, body):
        if body.get("involvedObject", {}).get("kind") not in (None, *OURS):
            return
        self._recorder.write("object", plural=self._plural, type=kind, **trimmed(self._plural, body))
