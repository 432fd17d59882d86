"""A real API server (etcd, kube-apiserver, controller manager) for the whole run, and operators on it."""

import os
import re
import socket
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from guardian import Guardian
from heterotp_api.crd import crds
from kube import Kube, KubeError, until
from places import ROOT, RUN
from proxy import Proxy

TOOLS = ROOT / "tools" / "cluster"
PACKAGES = [str(ROOT / part) for part in ("api", "operator")]
API_SERVER = re.compile(r"cp-it-(\d+)$")


def remove_leftovers():
    """Take down the API servers of earlier runs whose process is gone."""
    for left in RUN.glob("cp-it-*"):
        match = API_SERVER.search(left.name)
        if match and not Path(f"/proc/{match[1]}").exists():
            subprocess.run([TOOLS / "cp-down.sh", left.name.removeprefix("cp-")], check=True)


@pytest.fixture(scope="session")
def guardian():
    guardian = Guardian()
    yield guardian
    guardian.finish()


@pytest.fixture(scope="session")
def kubeconfig(guardian):
    """The kubeconfig's path of an API server with our CRDs, removed even when this run is killed."""
    remove_leftovers()
    name = f"it-{os.getpid()}"
    guardian.at_end([str(TOOLS / "cp-down.sh"), name])
    done = subprocess.run(
        [TOOLS / "cp-up.sh", name],
        env={**os.environ, "CP_WITHOUT": "kwok scheduler"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.fail(f"no API server (make test builds it): {done.stderr}", pytrace=False)
    path = Path(done.stdout.strip())
    install_crds(path)
    return path


def install_crds(kubeconfig):
    """Create the CRDs and wait until every kind is served."""
    with closing(Kube(kubeconfig)) as kube:
        for crd in crds():
            kube.create("customresourcedefinitions", None, crd)
        for crd in crds():
            name, plural = crd["metadata"]["name"], crd["spec"]["names"]["plural"]
            until(f"{name} is established", lambda name=name: established(kube, name))
            until(f"{name} is served", lambda plural=plural: served(kube, plural))


def served(kube, plural):
    """Return whether a list is answered: for a moment after a CRD is established it is not (404, 429)."""
    try:
        return kube.request("GET", kube.path(plural))
    except KubeError as error:
        if error.code not in (404, 429):
            raise
        return False


def established(kube, name):
    conditions = kube.get("customresourcedefinitions", None, name).get("status", {}).get("conditions", ())
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


@pytest.fixture(scope="session")
def kube(kubeconfig):
    kube = Kube(kubeconfig)
    yield kube
    kube.close()


@pytest.fixture
def proxy(kube):
    """A proxy before the API server, at which a test can make it fail."""
    proxy = Proxy(kube)
    yield proxy
    proxy.close()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class OperatorProcess:
    """`python -m heterotp_operator` on one namespace."""

    def __init__(self, guardian, kubeconfig, namespace, log, **settings):
        self.guardian, self.log, self.namespace = guardian, log, namespace
        self.port = free_port()
        given = {
            "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": os.pathsep.join(PACKAGES),
            "HETEROTP_NAMESPACES": namespace,
            "HETEROTP_LEASE_NAMESPACE": namespace,
            "HETEROTP_IDENTITY": f"test-{namespace}",
            "HETEROTP_METRICS_HOST": "127.0.0.1",
            "HETEROTP_METRICS_PORT": str(self.port),
            "HETEROTP_RELIST_RESYNC_SECONDS": "0.5",
            "HETEROTP_POLL_SECONDS": "0.5",
            "HETEROTP_TRAINER_IMAGE": "heterotp/trainer:test",
        }
        self.env = {**os.environ, **given, **settings}
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "heterotp_operator"], env=self.env, stdout=log, stderr=log, cwd="/"
            )
        self.guardian.watch(self.process.pid)
        return self

    def stop(self):
        """SIGTERM, and return the exit code."""
        self.process.terminate()
        return self._ended()

    def kill(self):
        """SIGKILL."""
        self.process.kill()
        return self._ended()

    def _ended(self):
        code = self.process.wait(30)
        self.guardian.forget(self.process.pid)
        return code

    def fetch(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return answer.read().decode()


@pytest.fixture(scope="session")
def new_operator(guardian, kubeconfig, tmp_path_factory):
    """A function that makes (not yet starts) an operator process."""
    logs = tmp_path_factory.mktemp("operator")
    made = []

    def make(namespace, kubeconfig=kubeconfig, **settings):
        operator = OperatorProcess(guardian, kubeconfig, namespace, logs / f"{namespace}.log", **settings)
        made.append(operator)
        return operator

    yield make
    for operator in made:
        if operator.process is not None and operator.process.poll() is None:
            operator.kill()
