"""Kubeflow's training-operator as a process on a bare API server, beside which operator_ready.py measures ours."""

import os
import re
import subprocess
import urllib.request
from pathlib import Path

import yaml
from bare_cluster import CRDS, ROOT, Api, Measured, free_port

JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
SECRETS = "/api/v1/namespaces/default/secrets"
CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")  # a constant of its program; the secret's mount in its pod
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
# 1 and 10 threads were tried; without other kinds of jobs it has fewer watches
FLAGS = (
    "--enable-scheme",
    "pytorchjob",
    "--controller-threads",
    "10",
    "--kube-api-qps",
    "5000",
    "--kube-api-burst",
    "5000",
)


class TrainingOperator(Measured):
    """The process, and what a benchmark has to know of it."""

    jobs = JOBS

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        tool = ROOT / "tools" / "cluster" / "training-operator.sh"
        subprocess.run([tool, "build"], check=True)
        files = subprocess.run([tool, "files"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        self._program, self._crd, self._log = files[0], Path(files[1]), log
        self.port, self._health, self._webhook = free_port(), free_port(), free_port()
        self._env = {**os.environ, "KUBECONFIG": str(kubeconfig), "MY_POD_NAMESPACE": "default"}

    async def prepare(self, api: Api) -> None:
        """Make its kind, and the certificates without which it waits; no webhook of its is registered."""
        await api.call("POST", CRDS, yaml.safe_load(self._crd.read_text()))
        await api.call("POST", SECRETS, {"metadata": {"name": "training-operator-webhook-cert"}})
        await api.call("POST", WEBHOOKS, {"metadata": {"name": "validator.training-operator.kubeflow.org"}})
        CERTIFICATES.mkdir(parents=True, exist_ok=True)
        pair = ("-keyout", CERTIFICATES / "tls.key", "-out", CERTIFICATES / "tls.crt")
        command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=bench", *pair)
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)

    def start(self) -> None:
        """Start the process."""
        at = (f"--metrics-bind-address=127.0.0.1:{self.port}", f"--health-probe-bind-address=127.0.0.1:{self._health}")
        with self._log.open("ab") as log:
            command = [self._program, *FLAGS, *at, f"--webhook-server-port={self._webhook}"]
            self.process = subprocess.Popen(command, env=self._env, stdout=log, stderr=log)

    def works(self) -> bool:
        """Return whether it is ready for jobs."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._health}/readyz", timeout=60) as answer:
            return answer.status == 200

    def job(self, number: int, pods: int) -> dict:
        """Return a job of one master and pods - 1 workers."""
        template = {"spec": {"containers": [{"name": "pytorch", "image": "heterotp/trainer:bench"}]}}
        replicas = {"Master": 1, "Worker": pods - 1}
        specs = {kind: {"replicas": count, "template": template} for kind, count in replicas.items()}
        body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": f"job-{number}"}}
        return body | {"spec": {"pytorchReplicaSpecs": specs}}

    def calls(self) -> dict[str, float]:
        """Return its calls to the API server: all, and writes of the status of jobs, its only PUTs."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = re.findall(r"^rest_client_requests_total\{(.*)\} (\S+)$", text, re.M)
        return {
            "requests": sum(float(count) for _, count in found),
            "writes": sum(float(count) for labels, count in found if 'method="PUT"' in labels),
        }
