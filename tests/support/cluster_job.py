"""A namespace on the kind cluster, the jobs in it, and what is printed when a test fails."""

import json
import time

from heterotp_api import names
from support.kube import Kube, KubeError, until
from support.patience import PATIENCE_SECONDS

METRICS_PORT = 9400
SMALL = {"hiddenSize": 32, "depth": 1, "heads": 4, "patchSize": 4, "ffnRatio": 4}  # the pace is the device's
PLURALS = {"BalancingPolicy": "balancingpolicies", "StragglerInjection": "stragglerinjections"}
LABELS = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "heterotp.io/e2e": "true",
    names.NAMESPACE_INJECTIONS: names.ALLOWED,
}


def two_ranks(name, iterations, seconds=0.1, checkpoint=None, model=SMALL, **more):
    """Return a job of one rank on each of the two unlike workers; an iteration takes at least `seconds`."""
    checkpoints = {"checkpoint": {"persistentVolumeClaim": "checkpoints", **checkpoint}} if checkpoint else {}
    training = {
        "model": model,
        "data": {"name": "digits"},
        "batchSize": 32,
        "iterations": iterations,
        "collectiveTimeoutSeconds": 60,
    }
    groups = [group("fast", "a100", 0.05, seconds), group("slow", "p100", 0.025, seconds)]
    return job(name, groups, training=training, **checkpoints, **more)


def group(name, accelerator, teraflops, seconds, speed=None):
    """Return a worker group of one emulated rank."""
    device = {"type": "emulated", "teraflops": teraflops, "fixedSeconds": seconds}
    return {
        "name": name,
        "device": device,
        "relativeSpeed": speed or teraflops / 0.05,
        "template": template(nodeSelector={"heterotp.io/accelerator": accelerator}),
    }


def template(image=None, command=None, **spec):
    threads = {"name": "OMP_NUM_THREADS", "value": "1"}  # all nodes share one machine
    container = {"name": "trainer", "env": [threads], "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}}}
    container |= {"image": image} if image else {}
    container |= {"command": command} if command else {}
    return {"spec": {"terminationGracePeriodSeconds": 10, "containers": [container], **spec}}


def job(name, groups, **spec):
    return {
        "apiVersion": names.API_VERSION,
        "kind": "HeteroTPJob",
        "metadata": {"name": name},
        "spec": {"tensorParallelDegree": len(groups), "workerGroups": groups, **spec},
    }


class Space:
    """A test's own namespace."""

    def __init__(self, kube: Kube, name: str):
        self.kube, self.name = kube, name
        kube.create("namespaces", None, {"metadata": {"name": name, "labels": LABELS}})
        until("the namespace has its service account", lambda: kube.get("serviceaccounts", name, "default"))

    def claim(self):
        """Make the volume claim that checkpoints go to."""
        spec = {
            "storageClassName": "standard",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "64Mi"}},
        }
        self.kube.create("persistentvolumeclaims", self.name, {"metadata": {"name": "checkpoints"}, "spec": spec})

    def apply(self, body):
        """Create the job and return a handle on it."""
        self.kube.create("heterotpjobs", self.name, body)
        return Job(self, body["metadata"]["name"])

    def put(self, body):
        """Create a policy or an injection and return a handle on it."""
        thing = Thing(self, PLURALS[body["kind"]], body["metadata"]["name"])
        self.kube.create(thing.plural, self.name, body)
        return thing

    def remove(self, seconds=PATIENCE_SECONDS):
        """Delete the namespace and wait until its pods are gone, so that the next test has the machine."""
        for each in self.kube.list("heterotpjobs", self.name):
            self.kube.delete("heterotpjobs", self.name, each["metadata"]["name"])
        self.kube.delete("namespaces", None, self.name)
        until(lambda: f"no pods in {self.name}", lambda: not self.kube.list("pods", self.name), seconds, 0.2)

    def report(self):
        """Return what a person would look at: jobs, pods, events, the ends of the ranks' logs."""
        lines = []
        for each in self.kube.list("heterotpjobs", self.name):
            lines.append(f"job {each['metadata']['name']}: {json.dumps(each.get('status'), indent=1)}")
        for event in self.kube.list("events", self.name)[-30:]:
            lines.append(f"event {event['involvedObject'].get('name')} {event.get('reason')}: {event.get('message')}")
        for pod in self.kube.list("pods", self.name):
            name = pod["metadata"]["name"]
            lines.append(f"pod {name}: {json.dumps(pod['status'].get('containerStatuses'))}")
            lines.append(logs(self.kube, self.name, name))
        return "\n".join(lines)


def logs(kube, namespace, pod, lines=25):
    """Return the end of a pod's log, or why there is none."""
    try:
        return kube.text("GET", kube.path("pods", namespace, pod, "log") + f"?tailLines={lines}").decode()
    except KubeError as error:
        return f"no log: {error.message}"


class Thing:
    """A policy or an injection on the cluster."""

    def __init__(self, space: Space, plural: str, name: str):
        self.space, self.plural, self.name = space, plural, name

    @property
    def status(self):
        return self.space.kube.get(self.plural, self.space.name, self.name).get("status") or {}

    def edit(self, spec):
        self.space.kube.patch(self.plural, self.space.name, self.name, {"spec": spec})

    def delete(self):
        self.space.kube.delete(self.plural, self.space.name, self.name)


class Job:
    """A job on the cluster; `seen` holds every (attempt, iteration) of rank 0 that was seen, `losses` the loss then."""

    def __init__(self, space: Space, name: str):
        self.space, self.kube, self.name = space, space.kube, name
        self.seen: list[tuple[int, int]] = []
        self.losses: dict[int, float] = {}

    @property
    def status(self):
        return self.kube.get("heterotpjobs", self.space.name, self.name).get("status") or {}

    @property
    def attempt(self):
        """The attempt; None: it has none yet, or the job is deleted."""
        found = self.kube.get("heterotpjobs", self.space.name, self.name) or {}
        return (found.get("status") or {}).get("attempt")

    def edit(self, spec):
        self.kube.patch("heterotpjobs", self.space.name, self.name, {"spec": spec})

    def delete(self):
        self.kube.delete("heterotpjobs", self.space.name, self.name)

    def pods(self, attempt=None):
        """Return the pods by first rank."""
        pods = self.kube.list("pods", self.space.name, f"{names.LABEL_JOB}={self.name}")
        found = {int(pod["metadata"]["labels"][names.LABEL_FIRST_RANK]): pod for pod in pods}
        return {
            rank: pod
            for rank, pod in found.items()
            if attempt is None or pod["metadata"]["labels"][names.LABEL_ATTEMPT] == str(attempt)
        }

    def ask(self, pod, path):
        """Return what a rank answers through the API server's proxy, None when it does not."""
        address = self.kube.path("pods", self.space.name, f"{pod}:{METRICS_PORT}", f"proxy{path}")
        try:
            return self.kube.text("GET", address).decode()
        except KubeError:
            return None

    def rank_zero(self, attempt):
        """Return the status document of rank 0 of an attempt, None while it does not answer."""
        pod = self.pods(attempt).get(0)
        text = pod and pod["status"].get("phase") == "Running" and self.ask(pod["metadata"]["name"], "/status")
        if not text:
            return None
        document = json.loads(text)
        if document["state"] != "starting":
            self.seen.append((document["attempt"], document["iteration"]))
            if document["loss"] is not None:
                self.losses[document["iteration"]] = document["loss"]
        return document

    def trained(self, attempt, iteration, seconds=PATIENCE_SECONDS):
        """Wait until rank 0 of an attempt has done so many iterations; return its status document."""

        def check():
            if self.status.get("phase") == "Failed":
                raise AssertionError(f"failed before iteration {iteration} of attempt {attempt}: {self.status}")
            document = self.rank_zero(attempt)
            return document if document and (document.get("iteration") or 0) >= iteration else None

        return until(lambda: f"attempt {attempt} at iteration {iteration}: {self.status}", check, seconds, 0.1)

    def reaches(self, seconds=PATIENCE_SECONDS, **wanted):
        """Wait until the status has these values; return it. A job that failed is waited for no longer."""
        deadline = time.monotonic() + seconds
        while True:
            status = self.status
            if all(status.get(key) == value for key, value in wanted.items()):
                return status
            failed = status.get("phase") == "Failed"
            if failed or time.monotonic() > deadline:
                raise AssertionError(f"not {wanted} {'but failed' if failed else f'within {seconds} s'}: {status}")
            time.sleep(0.2)

    def condition(self, kind):
        """Return a condition of the status, {} when it is not there."""
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), {})
