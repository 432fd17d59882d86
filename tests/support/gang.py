"""Simulates the kubelet and the ranks of a job: tests patch pod status through the API, as a node does."""

from heterotp_api import names
from support.kube import until
from support.patience import PATIENCE_SECONDS
from support.simulated_kubelet import SimulatedKubelet


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


class Gang(SimulatedKubelet):
    """One job on the API server and its pods."""

    def __init__(self, kube, namespace, body, created=False):
        """Create the job, unless it was created otherwise."""
        super().__init__(kube, namespace)
        self.name = body["metadata"]["name"]
        self.body = body if created else kube.create("heterotpjobs", namespace, body)
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

    def owns(self, child):
        """Whether the child belongs to this job, not to an earlier one of its name."""
        owners = child["metadata"].get("ownerReferences", ())
        return any(owner["uid"] == self.body["metadata"]["uid"] for owner in owners)

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
        """Wait until all pods of this job's attempt and no others exist; return them."""

        def complete():
            every, these = self.pods(), [pod for pod in self.pods(number) if self.owns(pod)]
            return these if len(every) == len(these) == self.degree else None

        what = lambda: f"attempt {number}: {[p['metadata']['name'] for p in self.pods()]} {self.status}"  # noqa: E731
        return until(what, complete, seconds)

    def suspend(self):
        """Suspend the job and wait until it has no pods."""
        self.patch({"runPolicy": {"suspend": True}})
        self.phase("Suspended")
        until(lambda: f"no pods: {self.names()}", lambda: not self.pods())

    # all pods
    def run_all(self, attempt, **status):
        for pod in self.attempt(attempt):
            self.run(pod, **status)
        return self.phase("Running")

    def end_all(self, attempt, code=0):
        for pod in self.pods(attempt):
            self.end(pod, code)
