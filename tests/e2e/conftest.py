"""The chart, installed on the kind cluster once for the whole test run; each test has its own namespace."""

import os
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from support.cluster_job import Space
from support.guardian import Guardian
from support.kube import Kube
from support.release import Release, remove_at_end

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


@pytest.fixture(scope="session")
def release(kube, kubeconfig):
    """The release; removed with its CRDs at the end, also when this test run is killed."""
    guardian = Guardian()
    remove_at_end(guardian, kubeconfig)
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
