"""The chart, installed on the kind cluster once for the whole test run; each test has its own namespace."""

import os

import pytest
from support.cluster_fixtures import installed, kube, pytest_runtest_makereport, space

__all__ = ["kube", "pytest_runtest_makereport", "space"]
MEASURED = pytest.StashKey[dict]()


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
    return os.environ["HETEROTP_KIND_KUBECONFIG"]  # support/programs.py has seen that it is there


@pytest.fixture(scope="session")
def release(kube, kubeconfig):
    with installed(kube, kubeconfig) as release:
        yield release
