"""Kueue in tests: flavors and a queue of one test, the Workload of a job, Kueue's manager."""

import json

from support.cluster_job import logs
from support.kube import MERGE, KubeError, until

SYSTEM = "kueue-system"
LOCAL_QUEUE = "team"
ACCELERATOR = "heterotp.io/accelerator"  # a label of the cluster's workers
CPU_OF_A_RANK = 50  # thousandths of a CPU that each rank of cluster_job.template() requests
KINDS = {
    "resourceflavors": "ResourceFlavor",
    "clusterqueues": "ClusterQueue",
    "localqueues": "LocalQueue",
    "topologies": "Topology",
    "workloadpriorityclasses": "WorkloadPriorityClass",
}


def create(kube, plural, namespace, name, **body):
    """Create an object of Kueue."""
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": KINDS[plural], "metadata": {"name": name}}
    return kube.create(plural, namespace, {**head, **body})


class Queue:
    """A ClusterQueue with room for so many ranks of each flavor, and a LocalQueue of the test's namespace.

    A flavor is the workers of one accelerator; `any` is all workers.
    """

    def __init__(self, space, ranks: dict[str, int], topology: str | None = None, **spec):
        self.space, self.kube, self.name = space, space.kube, space.name
        self.flavors = {accelerator: f"{self.name}-{accelerator}" for accelerator in ranks}
        self._made: list[tuple[str, str]] = []
        for accelerator, flavor in self.flavors.items():
            labels = {} if accelerator == "any" else {ACCELERATOR: accelerator}
            self._make(
                "resourceflavors", flavor, {"nodeLabels": labels or {"kubernetes.io/os": "linux"}, **_of(topology)}
            )
        self._make("clusterqueues", self.name, self._cluster_queue(ranks) | spec)
        create(self.kube, "localqueues", self.name, LOCAL_QUEUE, spec={"clusterQueue": self.name})
        until(lambda: f"the queue is active: {self.status}", self.active)

    def _make(self, plural, name, spec):
        create(self.kube, plural, None, name, spec=spec)
        self._made.append((plural, name))

    def _cluster_queue(self, ranks):
        quotas = [
            {
                "name": self.flavors[accelerator],
                "resources": [
                    {"name": "cpu", "nominalQuota": f"{CPU_OF_A_RANK * count}m"},
                    {"name": "memory", "nominalQuota": "8Gi"},
                ],
            }
            for accelerator, count in ranks.items()
        ]
        return {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.name}},
            "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": quotas}],
        }

    @property
    def status(self):
        return self.kube.get("clusterqueues", None, self.name).get("status") or {}

    def active(self):
        return any(c["type"] == "Active" and c["status"] == "True" for c in self.status.get("conditions", ()))

    def used(self):
        """Return the ranks whose quota is taken, by accelerator."""
        used = {each["name"]: each["resources"] for each in self.status.get("flavorsReservation", ())}
        return {accelerator: _ranks(used.get(flavor, ())) for accelerator, flavor in self.flavors.items()}

    def uses(self, **ranks):
        """Wait until so much quota is taken."""
        until(lambda: f"quota taken {ranks}: {self.used()}", lambda: self.used() == ranks, every=0.2)

    def stop(self, policy):
        """Set the stop policy: None, Hold or HoldAndDrain."""
        self.kube.patch("clusterqueues", None, self.name, {"spec": {"stopPolicy": policy}})

    def remove(self):
        """Delete what was made, of the namespace that is gone already."""
        for plural, name in reversed(self._made):
            self.kube.delete(plural, None, name)


def _of(topology):
    return {"topologyName": topology} if topology else {}


def _ranks(resources):
    total = next((each["total"] for each in resources if each["name"] == "cpu"), "0")
    thousandths = int(total[:-1]) if total.endswith("m") else 1000 * int(total)
    return thousandths // CPU_OF_A_RANK


class Workload:
    """The Workload of a job."""

    def __init__(self, run):
        self.kube, self.namespace, self.name = run.kube, run.space.name, run.name

    @property
    def body(self):
        return self.kube.get("workloads", self.namespace, self.name) or {}

    def conditions(self):
        """Return the status of each condition by type."""
        return {each["type"]: each["status"] for each in (self.body.get("status") or {}).get("conditions", ())}

    def reaches(self, **wanted):
        """Wait until conditions have these statuses."""
        until(
            lambda: f"workload {self.name} with {wanted}: {json.dumps(self.body.get('status'))}",
            lambda: wanted.items() <= self.conditions().items(),
            every=0.2,
        )

    def assigned(self):
        """Return the flavor of each pod set, and the count of its pods."""
        admission = (self.body.get("status") or {}).get("admission") or {}
        return {
            each["name"]: (each["flavors"]["cpu"], each["count"]) for each in admission.get("podSetAssignments", ())
        }

    def activate(self, active: bool):
        self.kube.patch("workloads", self.namespace, self.name, {"spec": {"active": active}})


class Manager:
    """Kueue's manager on the cluster."""

    def __init__(self, kube):
        self.kube = kube

    def pods(self):
        return {
            pod["metadata"]["name"]: pod for pod in self.kube.list("pods", SYSTEM, "control-plane=controller-manager")
        }

    def kill(self):
        """Kill it, and let no other one start."""
        self._scale(0)
        for name in self.pods():
            try:
                self.kube.delete("pods", SYSTEM, name, gracePeriodSeconds=0)
            except KubeError as error:
                if error.code != 404:
                    raise
        until(lambda: f"no manager: {list(self.pods())}", lambda: not self.pods(), every=0.2)

    def start(self):
        """Start it and wait until its webhooks answer."""
        self._scale(1)
        until("Kueue's webhooks answer", self.answers, every=0.5)

    def answers(self):
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "asked"}}
        try:
            return self.kube.request("POST", self.kube.path("resourceflavors") + "?dryRun=All", body)
        except KubeError:
            return None

    def _scale(self, replicas):
        path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/kueue-controller-manager"
        self.kube.request("PATCH", path, {"spec": {"replicas": replicas}}, MERGE)

    def log(self):
        return "\n".join(f"Kueue's manager {name}:\n{logs(self.kube, SYSTEM, name, 60)}" for name in self.pods())
