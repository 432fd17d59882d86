"""Each gang scheduler on an API server of its own, with two nodes of eight GPUs that kwok plays, and our operator."""

from contextlib import closing

import pytest
from support.api_server import TOOLS, api_server, remove_leftovers
from support.cluster_fixtures import FAILED, pytest_runtest_makereport
from support.gang_schedulers import GangScheduler, crds_of
from support.guardian import Guardian
from support.kube import Kube, make_namespace
from support.operator_process import OperatorProcess
from support.seats import NAMESPACE, Seats

__all__ = ["pytest_runtest_makereport"]
PLAYED = {"CP_FAKE_NODES": "2", "CP_KWOK_ARGS": f"--config {TOOLS / 'kwok-without-addresses.yaml'}"}


@pytest.fixture(scope="session")
def guardian():
    guardian = Guardian()
    yield guardian
    guardian.finish()


@pytest.fixture(scope="session", params=["coscheduling", "volcano"])
def provider(request):
    return request.param


@pytest.fixture(scope="session")
def kubeconfig(guardian, provider):
    remove_leftovers()
    with api_server(guardian, f"-{provider}", crds_of(provider), without="scheduler", **PLAYED) as path:
        yield path


@pytest.fixture(scope="session")
def kube(kubeconfig):
    with closing(Kube(kubeconfig)) as kube:
        make_namespace(kube, NAMESPACE)
        yield kube


@pytest.fixture(scope="session")
def scheduler(guardian, provider, kubeconfig, kube, tmp_path_factory):
    scheduler = GangScheduler(guardian, provider, kubeconfig, tmp_path_factory.mktemp(provider)).start()
    yield scheduler
    scheduler.kill()


@pytest.fixture(scope="session")
def operator(guardian, kubeconfig, kube, tmp_path_factory):
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    operator = OperatorProcess(guardian, kubeconfig, NAMESPACE, log).start()
    yield operator
    assert operator.stop() == 0, log.read_text()


@pytest.fixture
def seats(request, kube, provider, scheduler, operator):
    """The four seats of the two nodes; free again after the test."""
    seats = Seats(kube, provider)
    yield seats
    if request.node.stash.get(FAILED, False):
        print(seats.report(), scheduler.logs(), operator.log.read_text()[-4000:], sep="\n")
    seats.clear()
