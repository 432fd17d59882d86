"""The chart, installed on the kind cluster once for the whole test run; each test has its own namespace."""

import json
import os
import subprocess
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from support.cluster_job import Space, logs
from support.guardian import Guardian
from support.kube import MERGE, Kube, until
from support.patience import PATIENCE_SECONDS
from support.places import BIN, ROOT

SYSTEM = "heterotp-system"
RELEASE = "heterotp"
OPERATORS = "app.kubernetes.io/component=operator"
MEASURED = pytest.StashKey[dict]()
FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


def pytest_configure(config):
    config.stash[MEASURED] = {}


def pytest_terminal_summary(terminalreporter, config):
    for what, value in config.stash[MEASURED].items():
        shown = value if isinstance(value, str) else f"{value:.2f} s"
        terminalreporter.write_line(f"measured: {what}: {shown}")


@pytest.fixture(scope="session")
def measured(request):
    """A dict of measurements, in seconds or as text; printed at the end of the test run."""
    return request.config.stash[MEASURED]


@pytest.fixture(scope="session")
def kubeconfig():
    path = os.environ.get("HETEROTP_KIND_KUBECONFIG")
    if not path or not Path(path).is_file():
        pytest.fail(
            "HETEROTP_KIND_KUBECONFIG names no kubeconfig: run `make test`, or `make cluster-up`", pytrace=False
        )
    return path


@pytest.fixture(scope="session")
def kube(kubeconfig):
    with closing(Kube(kubeconfig)) as kube:
        yield kube


class Release:
    """The installed chart."""

    def __init__(self, kube, kubeconfig):
        self.kube, self.kubeconfig = kube, kubeconfig

    def helm(self, *arguments):
        """Run helm in the namespace of the release; return its output."""
        command = [BIN / "helm", "--kubeconfig", self.kubeconfig, "--namespace", SYSTEM, *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"helm {arguments[0]}: {done.stdout}\n{done.stderr}\n{self.log()}"
        return done.stdout

    def install(self):
        """Install the chart and wait until an operator is ready and leads."""
        often = {"HETEROTP_POLL_SECONDS": "1", "HETEROTP_INJECTION_LEASE_SECONDS": "10"}
        extra = [{"name": name, "value": value} for name, value in often.items()]
        self.helm(
            *("upgrade", "--install", RELEASE, str(ROOT / "charts" / "heterotp"), "--create-namespace"),
            *("--set", "image.tag=dev,trainerImage.tag=dev", "--set-json", f"extraEnv={json.dumps(extra)}"),
            *("--wait", "--timeout", f"{PATIENCE_SECONDS:.0f}s"),
        )
        until("an operator leads", self.leader, every=0.2)

    def scale(self, replicas):
        """Set the number of operators and wait until they run."""
        path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{RELEASE}-operator"
        self.kube.request("PATCH", path, {"spec": {"replicas": replicas}}, MERGE)
        until(lambda: f"{replicas} operators: {list(self.pods())}", lambda: len(self.pods()) == replicas, every=0.2)
        if replicas:
            until("an operator leads", self.leader, every=0.2)

    def uninstall(self):
        self.helm("uninstall", RELEASE, "--wait", "--timeout", f"{PATIENCE_SECONDS:.0f}s")
        until(lambda: f"no operator pods: {list(self.pods())}", lambda: not self.pods(), every=0.2)

    def pods(self):
        return {pod["metadata"]["name"]: pod for pod in self.kube.list("pods", SYSTEM, OPERATORS)}

    def leader(self):
        """Return the name of the operator pod that holds the Lease; None when no pod does."""
        lease = self.kube.get("leases", SYSTEM, f"{RELEASE}-operator")
        holder = ((lease or {}).get("spec") or {}).get("holderIdentity") or ""
        return next((name for name in self.pods() if holder.startswith(name)), None)

    def log(self):
        return "\n".join(f"operator {name}:\n{logs(self.kube, SYSTEM, name, 40)}" for name in self.pods())


@pytest.fixture(scope="session")
def release(kube, kubeconfig):
    """The release; removed with its CRDs at the end, also when this test run is killed."""
    guardian = Guardian()
    kubectl = [str(BIN / "kubectl"), "--kubeconfig", kubeconfig, "delete", "--ignore-not-found", "--wait=false"]
    guardian.at_end([*kubectl, "namespace", "--selector", "heterotp.io/e2e"])
    guardian.at_end([str(BIN / "helm"), "--kubeconfig", kubeconfig, "-n", SYSTEM, "uninstall", RELEASE])
    guardian.at_end([*kubectl, "namespace", SYSTEM])
    plurals = ("heterotpjobs", "balancingpolicies", "stragglerinjections")
    guardian.at_end([*kubectl, "crd", *(f"{plural}.heterotp.io" for plural in plurals)])
    try:
        release = Release(kube, kubeconfig)
        release.install()
        yield release
    finally:
        guardian.finish()


@pytest.fixture
def space(request, kube, release):
    space = Space(kube, f"e2e-{uuid.uuid4().hex[:8]}")
    yield space
    if request.node.stash.get(FAILED, False):
        print(space.report())
        print(release.log())
    space.remove()
