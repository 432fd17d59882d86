"""A real API server (etcd, kube-apiserver, controller manager) for the whole test run, and operators on it."""

import os
import re
import socket
import subprocess
import sys
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from heterotp_api.crd import crds
from support.guardian import Guardian
from support.kube import Kube, KubeError, make_namespace, until
from support.patience import PATIENCE_SECONDS
from support.places import ROOT, RUN
from support.proxy import Proxy

TOOLS = ROOT / "tools" / "cluster"
PACKAGES = [str(ROOT / part) for part in ("api", "operator")]
API_SERVER = re.compile(r"cp-it-(\d+)(-\w+)?$")


def remove_leftovers():
    """Remove the API servers of earlier test runs whose process has ended."""
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
def new_api_server(guardian):
    """A context manager that yields the kubeconfig path of a new API server with our CRDs and more."""
    remove_leftovers()

    @contextmanager
    def started(suffix="", more=(), ours=True):
        name = f"it-{os.getpid()}{suffix}"
        down = [str(TOOLS / "cp-down.sh"), name]
        guardian.at_end(down)
        path = start_api_server(name)
        try:
            install_crds(path, [*(crds() if ours else ()), *more])
            yield path
        finally:
            subprocess.run(down, check=True)

    return started


@pytest.fixture(scope="session")
def kubeconfig(new_api_server):
    """The kubeconfig path of an API server with our CRDs, removed also when this test run is killed."""
    with new_api_server() as path:
        yield path


def start_api_server(name):
    """Start an API server and return its kubeconfig path."""
    done = subprocess.run(
        [TOOLS / "cp-up.sh", name],
        env={**os.environ, "CP_WITHOUT": "kwok scheduler"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.fail(f"no API server (make test builds it): {done.stderr}", pytrace=False)
    return Path(done.stdout.strip())


def install_crds(kubeconfig, wanted):
    """Create the CRDs and wait until every version of every kind is served."""
    with closing(Kube(kubeconfig)) as kube:
        for crd in wanted:
            kube.create("customresourcedefinitions", None, crd)
        for crd in wanted:
            name = crd["metadata"]["name"]
            until(f"{name} is established", lambda name=name: established(kube, name))
            for path in collections_of(crd):
                until(f"{path} is served", lambda path=path: served(kube, path))


def collections_of(crd):
    """Return the paths of all objects of a CRD, one for each version that is served."""
    spec = crd["spec"]
    versions = [version["name"] for version in spec["versions"] if version["served"]]
    return [f"/apis/{spec['group']}/{version}/{spec['names']['plural']}" for version in versions]


def served(kube, path):
    """Return whether a list request succeeds: shortly after a CRD is established it does not (404, 429)."""
    try:
        return kube.request("GET", path)
    except KubeError as error:
        if error.code not in (404, 429):
            raise
        return False


def established(kube, name):
    conditions = kube.get("customresourcedefinitions", None, name).get("status", {}).get("conditions")
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions or ())  # null at first


@pytest.fixture(scope="session")
def kube(kubeconfig):
    kube = Kube(kubeconfig)
    yield kube
    kube.close()


@pytest.fixture
def proxy(kube):
    """A proxy in front of the API server that can inject failures."""
    proxy = Proxy(kube)
    yield proxy
    proxy.close()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class OperatorProcess:
    """A process of `python -m heterotp_operator` for one namespace."""

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
        """Send SIGTERM and return the exit code."""
        self.process.terminate()
        return self._ended()

    def kill(self):
        """Send SIGKILL and return the exit code."""
        self.process.kill()
        return self._ended()

    def _ended(self):
        code = self.process.wait(PATIENCE_SECONDS)
        self.guardian.forget(self.process.pid)
        return code

    def fetch(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE_SECONDS) as answer:
            return answer.read().decode()


@pytest.fixture(scope="session")
def new_operator(guardian, kubeconfig, tmp_path_factory):
    """A function that returns an operator process that is not started yet."""
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


@pytest.fixture(scope="session")
def operated(kube, new_operator):
    """A context manager that yields an operator in its own namespace; it must run to the end and stop on SIGTERM."""

    @contextmanager
    def at_work(namespace):
        make_namespace(kube, namespace)
        operator = new_operator(namespace).start()
        yield operator
        assert operator.process.poll() is None, operator.log.read_text()
        assert operator.stop() == 0, operator.log.read_text()

    return at_work
