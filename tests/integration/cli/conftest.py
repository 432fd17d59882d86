"""A job on a real API server, and the plugin as a process."""

import os

import pytest
from support.cli_process import run_cli
from support.cli_views import INJECTED, REDUCED_WORK, SLOW, balancing, job_status, rank
from support.gang import Gang, job
from support.kube import make_namespace
from support.played_operator import NAMESPACE, write_status


@pytest.fixture(scope="session")
def namespace(kube):
    return make_namespace(kube, NAMESPACE)


@pytest.fixture
def call(kubeconfig):
    """A function that runs the plugin as a process, and returns exit code, output and the lines of errors."""

    def run(*arguments, **env):
        env = {**os.environ, "KUBECONFIG": str(kubeconfig), **env}
        done = run_cli(*arguments, module="heterotp_cli.plugin", env=env)
        return done.returncode, done.stdout, done.stderr.splitlines()

    return run


@pytest.fixture
def demo(kube, namespace):
    """A job of four ranks on two groups, in whose status rank 2 is slowed on purpose and has reduced work."""
    demo = Gang(kube, namespace, job("demo", (("fast", 3), ("slow", 1))))
    write_status(demo, job_status(rank(2, **SLOW, **REDUCED_WORK, **INJECTED), balancing=balancing()))
    yield demo
    demo.delete()
    for each in kube.list("stragglerinjections", namespace):
        kube.delete("stragglerinjections", namespace, each["metadata"]["name"])
