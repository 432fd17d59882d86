"""Simulates the kubelet for pods of a namespace: it patches their status through the API, as a node does."""

from datetime import UTC, datetime

from heterotp_api import names


def now():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class SimulatedKubelet:
    """Writes what a kubelet writes about pods of one namespace."""

    def __init__(self, kube, namespace):
        self.kube, self.namespace = kube, namespace

    def _play(self, pod, phase, state, ready, more_conditions=(), **more):
        container = {
            "name": names.CONTAINER,
            "ready": ready,
            "restartCount": 0,
            "image": "i",
            "imageID": "",
            "state": state,
        }
        conditions = [
            {"type": kind, "status": "True" if ready or kind != "Ready" else "False", "lastTransitionTime": now()}
            for kind in ("PodScheduled", "Initialized", "Ready")
        ]
        status = {
            "phase": phase,
            "containerStatuses": [container],
            "conditions": [*conditions, *more_conditions],
            "startTime": now(),
            **more,
        }
        self.kube.patch("pods", self.namespace, pod["metadata"]["name"], {"status": status}, "status")

    def bind(self, pod, node):
        """Bind the pod to a node: from now on only a kubelet or a forced deletion removes it."""
        name, target = pod["metadata"]["name"], {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.kube.request("POST", self.kube.path("pods", self.namespace, name, "binding"), binding)

    def run(self, pod, **status):
        self._play(pod, "Running", {"running": {"startedAt": now()}}, True, **status)

    def end(self, pod, code, reason=""):
        terminated = {"exitCode": code, "reason": reason or ("Completed" if code == 0 else "Error")}
        terminated |= {"startedAt": now(), "finishedAt": now()}
        self._play(pod, "Failed" if code else "Succeeded", {"terminated": terminated}, False)

    def evict(self, pod):
        """End the pod as a kubelet does that is short of memory."""
        message = "The node was low on resource: memory."
        disruption = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
        disruption |= {"message": message, "lastTransitionTime": now()}
        terminated = {"exitCode": 137, "reason": "Error", "startedAt": now(), "finishedAt": now()}
        why = {"reason": "Evicted", "message": message}
        self._play(pod, "Failed", {"terminated": terminated}, False, [disruption], **why)

    def wait_state(self, pod, reason, message):
        self._play(pod, "Pending", {"waiting": {"reason": reason, "message": message}}, False)

    def unschedulable(self, pod, message):
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        status = {"phase": "Pending", "conditions": [condition | {"lastTransitionTime": now()}]}
        self.kube.patch("pods", self.namespace, pod["metadata"]["name"], {"status": status}, "status")

    def remove(self, pod):
        """Remove a terminating pod whose containers have ended."""
        uid = {"uid": pod["metadata"]["uid"]}
        self.kube.delete("pods", self.namespace, pod["metadata"]["name"], gracePeriodSeconds=0, preconditions=uid)
