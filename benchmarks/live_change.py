"""Time from `kubectl apply` until a change is in force on all ranks, and until the status shows it.

    make cluster-up cluster-load; export KUBECONFIG=$(tools/cluster/ensure.sh kubeconfig)
    helm install heterotp charts/heterotp -n heterotp-system --create-namespace --set image.tag=dev,trainerImage.tag=dev
    python benchmarks/live_change.py [--changes 20] [--iteration 0.1]

Runs a job of four ranks on the two workers of a kind cluster (emulated devices: an iteration takes --iteration
seconds) with the default settings of the operator (a poll every 5 s), and changes its policy repeatedly. Times are of
the clock of this machine and start before kubectl. In force: /metrics of every rank shows the generation.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from typing import Any

from kubernetes import client, config

GROUP, VERSION = "heterotp.io", "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
NAME, PORT = "live-change", 9400
STRATEGIES = ("ZERO", "MIG", "SEMI", "None")
PATIENCE_SECONDS = 120.0
GENERATION = re.compile(r"^heterotp_policy_generation\{.*\} ([\d.]+)$", re.MULTILINE)
KUBECTL = os.environ.get("KUBECTL", "kubectl")


def job(seconds: float) -> dict[str, Any]:
    """Return a job of four ranks, two on each type of node."""

    def group(accelerator: str) -> dict[str, Any]:
        container = {"name": "trainer", "env": [{"name": "OMP_NUM_THREADS", "value": "1"}]}
        container["resources"] = {"requests": {"cpu": "50m", "memory": "128Mi"}}
        spec = {"nodeSelector": {"heterotp.io/accelerator": accelerator}, "containers": [container]}
        device = {"type": "emulated", "teraflops": 0.05, "fixedSeconds": seconds}
        return {"name": accelerator, "pods": 2, "relativeSpeed": 1.0, "device": device, "template": {"spec": spec}}

    model = {"hiddenSize": 32, "depth": 1, "heads": 4, "patchSize": 4}
    training = {"model": model, "data": {"name": "digits"}, "batchSize": 32, "iterations": 100_000}
    groups = [group("a100"), group("p100")]
    spec = {"tensorParallelDegree": 4, "workerGroups": groups, "training": training}
    return {
        "apiVersion": API_VERSION,
        "kind": "HeteroTPJob",
        "metadata": {"name": NAME, "labels": {"b": NAME}},
        "spec": spec,
    }


def policy(number: int) -> dict[str, Any]:
    """Return the policy of a change, different from the previous one."""
    spec = {"selector": {"matchLabels": {"b": NAME}}, "strategy": STRATEGIES[number % 4], "window": 5 + number // 4}
    return {"apiVersion": API_VERSION, "kind": "BalancingPolicy", "metadata": {"name": NAME}, "spec": spec}


class Cluster:
    """The measured job, in a separate namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._objects, self._core = client.CustomObjectsApi(), client.CoreV1Api()

    def __enter__(self) -> "Cluster":
        self._core.create_namespace({"metadata": {"name": self.namespace}})
        until(lambda: bool(self._core.list_namespaced_service_account(self.namespace).items))
        return self

    def __exit__(self, *_: object) -> None:
        self._core.delete_namespace(self.namespace)

    def create(self, plural: str, body: dict[str, Any]) -> None:
        self._objects.create_namespaced_custom_object(GROUP, VERSION, self.namespace, plural, body)

    def status(self, plural: str) -> dict[str, Any]:
        found = self._objects.get_namespaced_custom_object(GROUP, VERSION, self.namespace, plural, NAME)
        return dict(found.get("status") or {})

    def pods(self) -> list[str]:
        return [pod.metadata.name for pod in self._core.list_namespaced_pod(self.namespace).items]

    def generation(self, pod: str) -> int:
        """Return the generation that a rank follows, from its metrics."""
        where = f"{pod}:{PORT}", self.namespace, "metrics"
        text = self._core.connect_get_namespaced_pod_proxy_with_path(*where, _preload_content=False).data.decode()
        found = GENERATION.search(text)
        return int(float(found[1])) if found else 0


def until(check: Callable[[], bool], every: float = 0.02) -> float:
    """Wait for a condition; return its time by the monotonic clock."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError("it never came to that")
        time.sleep(every)
    return time.monotonic()


def change(cluster: Cluster, number: int, pods: list[str]) -> dict[str, float]:
    """Apply a policy; return the seconds until kubectl ended, all ranks followed, the statuses showed it."""
    wanted = int(cluster.status("heterotpjobs")["balancing"]["generation"]) + 1
    with tempfile.NamedTemporaryFile("w", suffix=".json") as manifest:
        json.dump(policy(number), manifest)
        manifest.flush()
        begun = time.monotonic()
        apply = [KUBECTL, "apply", "-n", cluster.namespace, "-f", manifest.name]
        subprocess.run(apply, check=True, stdout=subprocess.DEVNULL)
    applied = time.monotonic()
    followed = until(lambda: all(cluster.generation(pod) >= wanted for pod in pods))
    of_job = until(lambda: cluster.status("heterotpjobs")["balancing"].get("appliedGeneration", 0) >= wanted)
    of_policy = until(lambda: shows_change(cluster.status("balancingpolicies"), number))
    moments = {"kubectl": applied, "inForce": followed, "jobStatus": of_job, "policyStatus": of_policy}
    return {name: moment - begun for name, moment in moments.items()}


def shows_change(status: dict[str, Any], number: int) -> bool:
    """Return whether the status of the policy belongs to this change and shows that its job follows."""
    return (status.get("observedGeneration"), status.get("appliedJobs")) == (number + 1, 1)


def summary(seconds: list[float]) -> dict[str, float]:
    """Return minimum, median, 95th percentile (nearest rank) and maximum."""
    ordered = sorted(seconds)
    p95 = ordered[max(0, -(-95 * len(ordered) // 100) - 1)]
    figures = {"min": ordered[0], "median": statistics.median(ordered), "p95": p95, "max": ordered[-1]}
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--iteration", type=float, default=0.1, help="seconds")
    arguments = parser.parse_args()
    config.load_kube_config()
    with Cluster(f"bench-{uuid.uuid4().hex[:8]}") as cluster:
        cluster.create("heterotpjobs", job(arguments.iteration))
        until(lambda: (cluster.status("heterotpjobs").get("training") or {}).get("iteration", 0) > 20, 0.5)
        pods = cluster.pods()
        took = [change(cluster, number, pods) for number in range(arguments.changes)]
        seconds = cluster.status("heterotpjobs")["training"]["iterationSeconds"]
    after = [each["policyStatus"] - each["inForce"] for each in took]
    parts = {name: summary([each[name] for each in took]) for name in took[0]}
    parts["statusAfterInForce"] = summary([max(0.0, each) for each in after])
    figures = {"changes": len(took), "emulated": True, "iterationSeconds": seconds, "seconds": parts}
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
