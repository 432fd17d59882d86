"""Monitors of the chart as the scrape configuration that the Prometheus operator generates from them.

A Prometheus outside the cluster scrapes pods through the API server's proxy; labels are those of one inside.
"""

import base64
import re
from pathlib import Path

import yaml

SNAKE = re.compile(r"(?<=[a-z])(?=[A-Z])")
SIDE = {"PodMonitor": ("pod", "podMetricsEndpoints"), "ServiceMonitor": ("endpoints", "endpoints")}
PORT = {"PodMonitor": "pod_container_port_name", "ServiceMonitor": "endpoint_port_name"}
THING = {"PodMonitor": "pod", "ServiceMonitor": "service"}


def scrape_configs(monitors, access, discovery):
    """Return a scrape configuration for each endpoint of the monitors."""
    return [_config(monitor, n, access, discovery) for monitor in monitors for n in range(len(_endpoints(monitor)))]


def cadvisor(access, discovery):
    """Return the scrape configuration of the kubelets' container metrics, as in kube-prometheus-stack."""
    path = _label("__metrics_path__", ["node_name"], "/api/v1/nodes/$1/proxy/metrics/cadvisor")
    found = {"file_sd_configs": [{"files": [discovery.file("node")]}]}
    return {"job_name": "cadvisor", "honor_labels": True, **found, **access.scrape([path])}


class Access:
    """Access of Prometheus to the API server; certificates are written into the directory."""

    def __init__(self, kubeconfig, directory):
        document = yaml.safe_load(Path(kubeconfig).read_text())
        self._directory = Path(directory)
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._host = cluster["server"].removeprefix("https://")
        self._tls = {
            "ca_file": self._file("ca", cluster["certificate-authority-data"]),
            "cert_file": self._file("cert", user["client-certificate-data"]),
            "key_file": self._file("key", user["client-key-data"]),
        }

    def _file(self, name, data):
        path = self._directory / f"{name}.pem"
        path.write_bytes(base64.b64decode(data))
        return str(path)

    def scrape(self, relabelings):
        """Return the connection part of a scrape configuration; `instance` remains the target's address."""
        instance = {"source_labels": ["__address__"], "target_label": "instance"}
        address = {"target_label": "__address__", "replacement": self._host}
        return {"scheme": "https", "tls_config": self._tls, "relabel_configs": [instance, *relabelings, address]}


def _endpoints(monitor):
    return monitor["spec"][SIDE[monitor["kind"]][1]]


def _config(monitor, n, access, discovery):
    kind, spec, endpoint = monitor["kind"], monitor["spec"], _endpoints(monitor)[n]
    metadata = monitor["metadata"]
    where = ["namespace", "pod_name", "pod_container_port_number"]
    path = _label("__metrics_path__", where, f"/api/v1/namespaces/$1/pods/$2:$3/proxy{endpoint['path']}")
    theirs = [{SNAKE.sub("_", key).lower(): value for key, value in each.items()} for each in endpoint["relabelings"]]
    return {
        "job_name": f"{kind}/{metadata['namespace']}/{metadata['name']}/{n}",
        "honor_labels": endpoint.get("honorLabels", False),
        "scrape_interval": endpoint["interval"],
        **{SNAKE.sub("_", key).lower(): spec[key] for key in ("sampleLimit", "labelLimit") if key in spec},
        "file_sd_configs": [{"files": [discovery.file(SIDE[kind][0])]}],
        **access.scrape([*_kept(kind, spec, endpoint), *_labels(monitor, endpoint), *theirs, path]),
    }


def _kept(kind, spec, endpoint):
    """Yield the relabelings that keep the selected pods or services and one of their ports."""
    for key, value in spec["selector"].get("matchLabels", {}).items():
        label = f"{THING[kind]}_label_{re.sub('[^a-zA-Z0-9_]', '_', key)}"
        yield _rule("keep", label, re.escape(value))
    for each in spec["selector"].get("matchExpressions", ()):
        assert each["operator"] == "Exists", each
        yield _rule("keep", f"{THING[kind]}_labelpresent_{re.sub('[^a-zA-Z0-9_]', '_', each['key'])}", "true")
    if names := spec["namespaceSelector"].get("matchNames"):
        yield _rule("keep", "namespace", "|".join(names))
    yield _rule("keep", PORT[kind], endpoint["port"])
    yield _rule("drop", "pod_phase", "(Failed|Succeeded)")


def _labels(monitor, endpoint):
    for target in ("namespace", "pod", "container"):
        source = target if target == "namespace" else f"pod_{'container_' if target == 'container' else ''}name"
        yield _label(target, [source], "$1")
    yield {"target_label": "job", "replacement": f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"}
    yield {"target_label": "endpoint", "replacement": endpoint["port"]}


def _rule(action, label, regex):
    return {"action": action, "source_labels": [f"__meta_kubernetes_{label}"], "regex": regex}


def _label(target, sources, replacement):
    regex = ";".join(["(.*)"] * len(sources))
    sources = [f"__meta_kubernetes_{source}" for source in sources]
    return {"target_label": target, "source_labels": sources, "regex": regex, "replacement": replacement}
