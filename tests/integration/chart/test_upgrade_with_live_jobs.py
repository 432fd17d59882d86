"""From the first chart to this one and back while jobs run: real helm, the operator with the release's own rights."""

from contextlib import closing

import pytest
from support.helm_cluster import RELEASE, SYSTEM, HelmCluster
from support.kube import KubeError, make_namespace, until
from support.older_gangs import OLDER, OlderGang
from support.rendered_chart import CHART, FIRST_CHART

pytestmark = pytest.mark.integration
TEAM = "team"


@pytest.fixture(scope="module")
def cluster(new_api_server):
    with new_api_server("-live", ours=False) as kubeconfig:
        cluster = HelmCluster(kubeconfig)
        with closing(cluster.kube):
            for namespace in (SYSTEM, TEAM):
                make_namespace(cluster.kube, namespace)
            yield cluster


@pytest.fixture(scope="module")
def gangs(cluster):
    """Gangs that run under the first chart and its CRDs, by name."""
    cluster.release("install", FIRST_CHART, {})
    for plural in ("heterotpjobs", "balancingpolicies", "stragglerinjections"):
        until(f"{plural} are served", lambda plural=plural: is_served(cluster.kube, plural))
    return {name: OlderGang(cluster.kube, TEAM, older) for name, older in OLDER.items()}


def is_served(kube, plural):
    try:
        return kube.list(plural, TEAM) == []
    except KubeError as error:
        if error.code not in (404, 429):
            raise
        return False


@pytest.fixture(scope="module")
def upgraded(cluster, gangs):
    """Pods and counters of the gangs before the upgrade, by the name of the job."""
    before = {name: (gang.uids(), gang.status["attempt"], gang.status["restarts"]) for name, gang in gangs.items()}
    cluster.release("upgrade", CHART, {})
    return before


@pytest.fixture(scope="module")
def operator(cluster, upgraded, new_operator, tmp_path_factory):
    """The operator of this version, with the settings and the rights that the upgraded release gives it."""
    kubeconfig = cluster.kubeconfig_of_the_operator(tmp_path_factory.mktemp("account") / "kubeconfig")
    settings = cluster.environment() | {"HETEROTP_LEASE_NAMESPACE": SYSTEM, "HETEROTP_METRICS_HOST": "127.0.0.1"}
    operator = new_operator("all", kubeconfig, **{"HETEROTP_NAMESPACES": "", **settings}).start()
    yield operator
    assert operator.process.poll() is None, operator.log.read_text()
    assert operator.stop() == 0, operator.log.read_text()
    assert "Forbidden" not in operator.log.read_text()


@pytest.mark.parametrize("name", OLDER)
def test_a_running_gang_keeps_pods_and_attempt(gangs, upgraded, operator, name):
    gang = gangs[name]
    gang.kube.patch("heterotpjobs", TEAM, name, {"status": {"observedGeneration": 0}}, "status")
    generation = gang.live()["metadata"]["generation"]
    until("the job is reconciled", lambda: gang.status.get("observedGeneration") == generation)
    assert (gang.uids(), gang.status["attempt"], gang.status["restarts"]) == upgraded[name]
    assert gang.status["phase"] == "Running"
    assert gang.body["metadata"]["generation"] == generation


def test_kubectl_shows_the_columns_of_the_new_crds(cluster, operator):
    header, *rows = cluster.run("kubectl", "get", "htpj", "-n", TEAM).splitlines()
    assert "WAITING" in header.split()
    assert {row.split()[0]: row.split()[1] for row in rows} == dict.fromkeys(OLDER, "Running")


def test_a_job_goes_to_its_end_and_away_under_the_new_version(cluster, gangs, upgraded, operator):
    name, *_ = OLDER
    gang = gangs[name]
    gang.end_all(1)
    gang.phase("Succeeded")
    assert (gang.status["attempt"], gang.status["restarts"]) == upgraded[name][1:]
    gang.delete()
    until(lambda: f"nothing is left: {gang.names()}", lambda: gang.live() is None and not gang.names())


def test_after_a_rollback_the_jobs_are_still_there(cluster, gangs, upgraded, operator):
    *_, name = OLDER
    cluster.run("helm", "rollback", RELEASE, "-n", SYSTEM)
    assert gangs[name].live()["metadata"]["uid"] == gangs[name].body["metadata"]["uid"]
    assert gangs[name].uids() == upgraded[name][0]
