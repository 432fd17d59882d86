"""Fixtures of tests on a kind cluster: a client, the chart installed once, a namespace for each test."""

import uuid
from contextlib import closing, contextmanager

import pytest
from support.cluster_job import Space
from support.guardian import Guardian
from support.kube import Kube
from support.release import Release, remove_at_end

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture(scope="session")
def kube(kubeconfig):
    with closing(Kube(kubeconfig)) as kube:
        yield kube


@contextmanager
def installed(kube, kubeconfig, *values):
    """The release with these values; removed with its CRDs at the end, also when this test run is killed."""
    guardian = Guardian()
    remove_at_end(guardian, kubeconfig)
    try:
        release = Release(kube, kubeconfig, *values)
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
