"""The chart with Kueue, installed once for the whole test run; each test has its own namespace and queues."""

import json
import os
import uuid

import pytest
from support.cluster_fixtures import FAILED, installed, kube, pytest_runtest_makereport, space
from support.kueue_queue import Manager, Queue, create

__all__ = ["kube", "pytest_runtest_makereport", "space"]


@pytest.fixture(scope="session")
def kubeconfig():
    return os.environ["HETEROTP_KUEUE_KUBECONFIG"]  # support/programs.py has seen that it is there


@pytest.fixture(scope="session")
def release(kube, kubeconfig):
    with installed(kube, kubeconfig, "kueue.enabled=true") as release:
        yield release


@pytest.fixture
def manager(kube):
    """Kueue's manager; it runs again after the test."""
    manager = Manager(kube)
    yield manager
    manager.start()


@pytest.fixture
def cluster_scoped(kube):
    """A function that makes an object outside namespaces and returns its name; removed after the test."""
    made = []

    def make(plural, kind, **body):
        name = f"e2e-{kind}-{uuid.uuid4().hex[:8]}"
        create(kube, plural, None, name, **body)
        made.append((plural, name))
        return name

    yield make
    for plural, name in reversed(made):
        kube.delete(plural, None, name)


@pytest.fixture
def queue(request, cluster_scoped, space):
    """A function that makes the queue of the test; what Kueue thought is printed when the test fails."""
    queues = []

    def make(ranks, **spec):
        queues.append(Queue(space, ranks, **spec))
        return queues[-1]

    yield make
    if request.node.stash.get(FAILED, False):
        for each in space.kube.list("workloads", space.name):
            print(f"workload {each['metadata']['name']}: {json.dumps(each.get('status'), indent=1)}")
        print(*(f"queue {each.name}: {json.dumps(each.status)}" for each in queues), sep="\n")
        print(Manager(space.kube).log())
    for each in queues:
        each.remove()
