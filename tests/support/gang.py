"""Simulates the kubelet and the ranks of a job: tests patch pod status through the API, as a node does."""

from datetime import UTC, datetime

from heterotp_api import names
from support.kube import until
from support.patience import PATIENCE_SECONDS


def groups_of(pods, **container):
    """Return worker groups of (name, pods), one process per pod; keywords: more fields of their container."""
    template = {"spec": {"containers": [{"name": names.CONTAINER, "image": "heterotp/trainer:test", **container}]}}
    return [{"name": group, "pods": count, "template": template} for group, count in pods]


def job(name, pods=(("a", 2),), training=True, metadata=None, spec=None, **run_policy):
    """Return a HeteroTPJob of these worker groups; spec: more fields of it."""
    groups = groups_of(pods)
    degree = sum(count for _, count in pods)
    spec = {"tensorParallelDegree": degree, "workerGroups": groups, "runPolicy": run_policy, **(spec or {})}
    if training:
        spec["training"] = {"model": {"preset": "vit-tiny"}}
    metadata = {"name": name, **(metadata or {})}
    return {"apiVersion": names.API_VERSION, "kind": "HeteroTPJob", "metadata": metadata, "spec": spec}


def now():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Gang:
    """One job on the API server and its pods."""

    def __init__(self, kube, namespace, body):
        self.kube, self.namespace, self.name = kube, namespace, body["metadata"]["name"]
        self.body = kube.create("heterotpjobs", namespace, body)
        self.degree = body["spec"]["tensorParallelDegree"]

    def live(self):
        return self.kube.get("heterotpjobs", self.namespace, self.name)

    @property
    def status(self):
        live = self.live()
        return (live or {}).get("status", {})

    def condition(self, kind):
        found = [c for c in self.status.get("conditions", ()) if c["type"] == kind]
        return found[0] if found else {"status": "Unknown", "reason": "", "message": ""}

    def patch(self, spec):
        return self.kube.patch("heterotpjobs", self.namespace, self.name, {"spec": spec})

    def delete(self):
        self.kube.delete("heterotpjobs", self.namespace, self.name, propagationPolicy="Background")

    def pods(self, attempt=None):
        selector = f"{names.LABEL_JOB}={self.name}"
        if attempt is not None:
            selector += f",{names.LABEL_ATTEMPT}={attempt}"
        return self.kube.list("pods", self.namespace, selector)

    def children(self):
        selector = f"{names.LABEL_JOB}={self.name}"
        return [
            o for kind in ("pods", "services", "configmaps") for o in self.kube.list(kind, self.namespace, selector)
        ]

    def names(self):
        return [child["metadata"]["name"] for child in self.children()]

    # waiting
    def phase(self, wanted, seconds=PATIENCE_SECONDS):
        until(lambda: f"{self.name} is {wanted}: {self.status}", lambda: self.status.get("phase") == wanted, seconds)
        return self

    def waits_for(self, wanted, seconds=PATIENCE_SECONDS):
        what = lambda: f"{self.name} waits for {wanted!r}: {self.status}"  # noqa: E731
        until(what, lambda: self.status.get("waitingFor", "") == wanted, seconds)

    def attempt(self, number, seconds=PATIENCE_SECONDS):
        """Wait until all pods of this attempt and no others exist; return them."""

        def complete():
            every, these = self.pods(), self.pods(number)
            return these if len(every) == len(these) == self.degree else None

        what = lambda: f"attempt {number}: {[p['metadata']['name'] for p in self.pods()]} {self.status}"  # noqa: E731
        return until(what, complete, seconds)

    def suspend(self):
        """Suspend the job and wait until it has no pods."""
        self.patch({"runPolicy": {"suspend": True}})
        self.phase("Suspended")
        until(lambda: f"no pods: {self.names()}", lambda: not self.pods())

    # acting as the kubelet
    def _play(self, pod, phase, state, ready, **more):
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
            "conditions": conditions,
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

    def wait_state(self, pod, reason, message):
        self._play(pod, "Pending", {"waiting": {"reason": reason, "message": message}}, False)

    def unschedulable(self, pod, message):
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        status = {"phase": "Pending", "conditions": [condition | {"lastTransitionTime": now()}]}
        self.kube.patch("pods", self.namespace, pod["metadata"]["name"], {"status": status}, "status")

    def run_all(self, attempt, **status):
        for pod in self.attempt(attempt):
            self.run(pod, **status)
        return self.phase("Running")

    def end_all(self, attempt, code=0):
        for pod in self.pods(attempt):
            self.end(pod, code)
