"""A real API server (etcd, kube-apiserver, controller manager) for the whole test run, and operators on it."""

from contextlib import contextmanager
from functools import partial

import pytest
from support.api_server import api_server, remove_leftovers
from support.guardian import Guardian
from support.kube import Kube, make_namespace
from support.operator_process import OperatorProcess
from support.proxy import Proxy


@pytest.fixture(scope="session")
def guardian():
    guardian = Guardian()
    yield guardian
    guardian.finish()


@pytest.fixture(scope="session")
def new_api_server(guardian):
    """A context manager that yields the kubeconfig path of a new API server with our CRDs and more."""
    remove_leftovers()
    return partial(api_server, guardian)


@pytest.fixture(scope="session")
def kubeconfig(new_api_server):
    """The kubeconfig path of an API server with our CRDs, removed also when this test run is killed."""
    with new_api_server() as path:
        yield path


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
