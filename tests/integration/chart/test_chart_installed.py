"""The chart on a real API server: installed as its first version, upgraded, uninstalled; its pods and its roles."""

import importlib.util
import ssl
from contextlib import closing

import pytest
import yaml
from support.helm_cluster import RELEASE, SYSTEM, HelmCluster
from support.kube import KubeError, make_namespace, until
from support.published_crds import published
from support.reconcile_world import World, manifest
from support.rendered_chart import CASES, CHART, FIRST_CHART, helm, one, pod_of, render

pytestmark = pytest.mark.integration
TEAM = "team"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
EXAMPLES = {
    {"HeteroTPJob": "heterotpjobs", "BalancingPolicy": "balancingpolicies"}.get(
        body["kind"], "stragglerinjections"
    ): body
    for body in yaml.safe_load(
        yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]["artifacthub.io/crdsExamples"]
    )
}


class Team(HelmCluster):
    """A cluster with the examples of Chart.yaml in the namespace of a team."""

    def objects(self):
        """Return what identifies our kinds' objects and every change of them."""
        found = {plural: self.kube.get(plural, TEAM, body["metadata"]["name"]) for plural, body in EXAMPLES.items()}
        return {
            plural: each and (each["metadata"]["uid"], each["metadata"]["generation"], each["spec"])
            for plural, each in found.items()
        }


@pytest.fixture(scope="module")
def cluster(new_api_server):
    """It has the Prometheus operator's kinds, and not ours: the chart brings them."""
    with new_api_server("-chart", published("monitor_kinds"), ours=False) as kubeconfig:
        cluster = Team(kubeconfig)
        with closing(cluster.kube):
            for namespace in (SYSTEM, TEAM, "team-a", "team-b", "monitoring"):
                make_namespace(cluster.kube, namespace)
            yield cluster


@pytest.fixture(scope="module")
def upgraded(cluster):
    """The release, installed as the first chart and upgraded; the objects and the Deployment that there were before."""
    cluster.release("install", FIRST_CHART, {})
    for plural, body in EXAMPLES.items():
        until(f"{plural} are served", lambda plural=plural, body=body: served(cluster.kube, plural, body))
    before = cluster.objects(), cluster.deployment()
    cluster.release("upgrade", CHART, CASES["everything"])
    return before


def served(kube, plural, body):
    """Create an object, once its kind is served."""
    try:
        return kube.create(plural, TEAM, body)
    except KubeError as error:
        if error.code not in (404, 429):
            raise
        return None


def test_an_upgrade_from_the_first_chart_keeps_every_object(cluster, upgraded):
    objects, deployment = upgraded
    assert None not in objects.values()
    assert cluster.objects() == objects
    after = cluster.deployment()
    assert after["metadata"]["uid"] == deployment["metadata"]["uid"]
    assert after["metadata"]["generation"] > deployment["metadata"]["generation"]


@pytest.mark.parametrize("plural", EXAMPLES)
def test_an_old_object_can_be_edited_after_the_upgrade(cluster, upgraded, plural):
    name = EXAMPLES[plural]["metadata"]["name"]
    path = cluster.kube.path(plural, TEAM, name) + "?fieldValidation=Strict&dryRun=All"
    edited = cluster.kube.get(plural, TEAM, name)
    edited["metadata"]["annotations"] = {"note": "edited"}
    assert cluster.kube.request("PUT", path, edited)["spec"] == edited["spec"]


def test_jobs_outlive_the_release_and_the_next_one_takes_them_over(cluster, upgraded):
    cluster.run("helm", "uninstall", RELEASE, "-n", SYSTEM)
    assert cluster.objects() == upgraded[0]
    cluster.release("install", CHART, CASES["everything"])
    assert cluster.objects() == upgraded[0]


@pytest.mark.parametrize("name", CASES)
def test_the_api_server_takes_every_object(cluster, upgraded, name):
    # without hooks: a pod is refused while its account is not really there
    done = helm(values=CASES[name], arguments=("--skip-tests",))
    apply = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
    lines = cluster.run("kubectl", *apply, stdin=done.stdout).splitlines()
    assert len(lines) > 3
    assert all(line.endswith("serverside-applied (server dry run)") for line in lines)


# -- Pod Security Standards -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def restricted(cluster):
    """A namespace that takes restricted pods only."""
    make_namespace(cluster.kube, "restricted")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.kube.patch("namespaces", None, "restricted", {"metadata": {"labels": labels}})
    return "restricted"


def ranks():
    world = World(manifest(checkpoint={}))
    world.settle()
    return list(world.pods.values())


def try_pod(cluster, namespace, spec):
    path = cluster.kube.path("pods", namespace) + "?dryRun=All&fieldValidation=Strict"
    spec = {key: value for key, value in spec.items() if key != "serviceAccountName"}  # it is elsewhere
    return cluster.kube.request("POST", path, {"metadata": {"name": "asked"}, "spec": spec})


PODS = {
    "operator": lambda: [pod_of(render(values=CASES["everything"]))],
    "test": lambda: [one(render(), "Pod")],
    "ranks": ranks,
}


@pytest.mark.parametrize("pods", PODS.values(), ids=PODS)
def test_pods_are_restricted(cluster, restricted, pods):
    for pod in pods():
        assert try_pod(cluster, restricted, pod["spec"])["spec"]["containers"]


def test_other_pods_are_not_taken_there(cluster, restricted):
    with pytest.raises(KubeError, match="restricted"):
        try_pod(cluster, restricted, {"containers": [{"name": "any", "image": "any"}]})


# -- helm test, and what people may do ------------------------------------------------------------------------
@pytest.fixture(scope="module")
def tester(cluster, upgraded):
    """A token of the account that `helm test` makes."""
    objects = render(release=RELEASE)
    hooks = [each for each in objects if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    rights = [each for each in hooks if each["kind"] != "Pod"]
    cluster.run("kubectl", "apply", "-f", "-", stdin=yaml.safe_dump_all(rights))
    path = cluster.kube.path("serviceaccounts", SYSTEM, f"{RELEASE}-test", "token")
    return cluster.kube.request("POST", path, {"spec": {}})["status"]["token"]


def test_what_helm_test_asks_is_answered_with_its_rights_and_no_more(cluster, tester):
    spec = importlib.util.spec_from_file_location("smoke", CHART / "files" / "smoke.py")
    smoke = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(smoke)
    context = ssl.create_default_context(cafile=cluster.kube.authority)
    until("the Role is in force", lambda: smoke.dry_run(cluster.kube.server, SYSTEM, {}, tester, context)[0] != 403)
    smoke.check_kinds(cluster.kube.server, SYSTEM, tester, context)
    assert cluster.kube.get("heterotpjobs", SYSTEM, "helm-test") is None
    with pytest.raises(smoke.Broken, match="403"):
        smoke.check_kinds(cluster.kube.server, TEAM, tester, context)


def may(cluster, user, verb, resource):
    attributes = {"group": "heterotp.io", "resource": resource, "verb": verb, "namespace": TEAM}
    body = {"spec": {"user": user, "resourceAttributes": attributes}}
    answer = cluster.kube.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return answer["status"]["allowed"]


@pytest.mark.parametrize(("role", "changes"), [("view", False), ("edit", True), ("admin", True)])
def test_people_have_our_kinds_in_the_clusters_roles(cluster, upgraded, role, changes):
    subjects = [{"kind": "User", "name": f"a-{role}", "apiGroup": "rbac.authorization.k8s.io"}]
    reference = {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": role}, "roleRef": reference, "subjects": subjects}
    cluster.kube.request("POST", f"{RBAC}/namespaces/{TEAM}/rolebindings", binding)
    for plural in EXAMPLES:
        until(f"{role} sees {plural}", lambda plural=plural: may(cluster, f"a-{role}", "list", plural))
        may_change = changes and plural != "stragglerinjections"  # a right of its own: the ClusterRole of injectors
        if may_change:
            until(f"{role} changes {plural}", lambda plural=plural: may(cluster, f"a-{role}", "patch", plural))
        assert may(cluster, f"a-{role}", "delete", plural) == may_change
    assert not may(cluster, f"a-{role}", "patch", "heterotpjobs/status")
