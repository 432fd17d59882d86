"""Replaces the Kubernetes discovery of Prometheus, which Debian's package is built without.

Pods, services and nodes of a cluster become targets in files, with the `__meta_kubernetes_*` labels of the real
discovery, so that the real relabelings apply.
"""

import json
import re
import threading
from contextlib import closing
from pathlib import Path

from support.kube import Kube

EVERY_SECONDS = 0.5
META = "__meta_kubernetes_"


class Discovery(threading.Thread):
    """Reads the cluster every half second and writes a file for each role: pod, endpoints, node."""

    def __init__(self, kubeconfig, directory):
        super().__init__(name="discovery", daemon=True)
        self._kubeconfig, self._directory = kubeconfig, Path(directory)
        self._over = threading.Event()
        self.look()

    def file(self, role):
        return str(self._directory / f"{role}.json")

    def run(self):
        while not self._over.wait(EVERY_SECONDS):
            self.look()

    def stop(self):
        self._over.set()
        self.join()

    def look(self):
        """Write the current targets; each file is replaced atomically."""
        with closing(Kube(self._kubeconfig)) as kube:
            pods, services, nodes = (kube.list(plural) for plural in ("pods", "services", "nodes"))
        found = {
            "pod": [target for pod in pods for target in of_pod(pod)],
            "endpoints": [target for service in services for target in of_service(service, pods)],
            "node": [{"targets": [name], "labels": {f"{META}node_name": name}} for name in map(_name, nodes)],
        }
        for role, targets in found.items():
            new = Path(self.file(role) + ".new")
            new.write_text(json.dumps(targets))
            new.replace(self.file(role))


def of_pod(pod):
    """Yield a target for each port of each container of a pod that has an address."""
    address = pod["status"].get("podIP")
    for container in pod["spec"]["containers"] if address else ():
        for port in container.get("ports") or ():
            facts = {
                "namespace": pod["metadata"]["namespace"],
                "pod_name": _name(pod),
                "pod_node_name": pod["spec"].get("nodeName", ""),
                "pod_phase": pod["status"]["phase"],
                "pod_container_name": container["name"],
                "pod_container_port_name": port.get("name", ""),
                "pod_container_port_number": str(port["containerPort"]),
                **_labels("pod", pod),
            }
            named = {META + key: value for key, value in facts.items()}
            yield {"targets": [f"{address}:{port['containerPort']}"], "labels": named}


def of_service(service, pods):
    """Yield a target for each ready pod behind each port of a service."""
    selector = service["spec"].get("selector") or {}
    for pod in pods if selector else ():
        metadata = pod["metadata"]
        same = metadata["namespace"] == service["metadata"]["namespace"]
        if not (same and selector.items() <= (metadata.get("labels") or {}).items() and _ready(pod)):
            continue
        for port in service["spec"]["ports"]:
            for target in of_pod(pod):
                if target["labels"][f"{META}pod_container_port_name"] == port.get("targetPort"):
                    facts = {"service_name": _name(service), "endpoint_port_name": port.get("name", "")}
                    facts |= _labels("service", service)
                    yield {**target, "labels": {**target["labels"], **{META + k: v for k, v in facts.items()}}}


def _name(thing):
    return thing["metadata"]["name"]


def _labels(kind, thing):
    """Return the labels of an object and their presence flags, under the names that Prometheus gives them."""
    found = {}
    for key, value in (thing["metadata"].get("labels") or {}).items():
        name = re.sub("[^a-zA-Z0-9_]", "_", key)
        found |= {f"{kind}_label_{name}": value, f"{kind}_labelpresent_{name}": "true"}
    return found


def _ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or ())
