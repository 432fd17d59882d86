"""A real API server with the published CRDs of Kueue, Volcano and the coscheduling plugin accepts every example."""

import copy
from contextlib import closing

import pytest
import yaml
from heterotp_api import names, ranks
from heterotp_api.crd import crds
from heterotp_api.load import parse_object
from heterotp_operator.reconcile.gang_schedulers.registry import pod_group
from support.gang import Gang
from support.kube import Kube, KubeError, make_namespace, until
from support.places import ROOT
from support.played_kueue import admit
from support.published_crds import published

pytestmark = pytest.mark.integration
EXAMPLES = ROOT / "examples"
FILES = sorted(EXAMPLES.rglob("*.yaml"))
OPERATED = "operated"
POD_GROUPS = "/apis/scheduling.volcano.sh/v1beta1"


def id_of(path):
    return str(path.relative_to(EXAMPLES))


each_file = pytest.mark.parametrize("path", FILES, ids=id_of)


def bodies(path):
    return list(yaml.safe_load_all(path.read_text()))


def jobs(path):
    return [body for body in bodies(path) if body["kind"] == "HeteroTPJob"]


def has_twin(path):
    """Return whether the same job is there as a manifest for clusters."""
    return path.name == "job.yaml" and path.with_name("cluster.yaml").exists()


ON_CLUSTERS = [path for path in FILES if jobs(path) and not has_twin(path)]
CLAIM = {"scope": "Namespaced", "names": {"plural": "persistentvolumeclaims"}}


class Server:
    """An API server that refuses unknown fields."""

    def __init__(self, kubeconfig, known):
        self.kubeconfig, self.kube, self._made = kubeconfig, Kube(kubeconfig), 0
        self._kinds = {(crd["spec"]["group"], crd["spec"]["names"]["kind"]): crd["spec"] for crd in known}
        self._kinds["v1", "PersistentVolumeClaim"] = CLAIM

    def namespace(self):
        self._made += 1
        return make_namespace(self.kube, f"examples-{self._made}")

    def create(self, body, namespace):
        """Create an object strictly, in its namespace or beside all of them; return what is stored."""
        spec = self._kinds[body["apiVersion"].partition("/")[0], body["kind"]]
        place = f"namespaces/{namespace}/" if spec["scope"] == "Namespaced" else ""
        root = "apis" if "/" in body["apiVersion"] else "api"
        path = f"/{root}/{body['apiVersion']}/{place}{spec['names']['plural']}"
        return self.kube.request("POST", f"{path}?fieldValidation=Strict", body)

    def try_pod(self, spec, namespace):
        """Ask strictly whether a pod would be created."""
        path = self.kube.path("pods", namespace) + "?fieldValidation=Strict&dryRun=All"
        return self.kube.request("POST", path, {"metadata": {"name": "asked"}, "spec": spec})


@pytest.fixture(scope="module")
def server(new_api_server):
    """An API server of its own: foreign CRDs would change what other tests see."""
    foreign = published("gang_kinds")
    with new_api_server("-examples", foreign) as kubeconfig:
        server = Server(kubeconfig, [*crds(), *foreign])
        with closing(server.kube):
            yield server


@each_file
def test_every_object_is_accepted(server, path):
    namespace = server.namespace()
    for body in bodies(path):
        stored = server.create(body, namespace)
        assert stored["metadata"]["uid"]


@each_file
def test_every_template_is_a_pod(server, path):
    """CRDs cannot look into templates: a misspelt field there would be lost without a word."""
    namespace = server.namespace()
    for group in (group for job in jobs(path) for group in job["spec"]["workerGroups"] if "template" in group):
        spec = copy.deepcopy(group["template"]["spec"])
        for container in spec["containers"]:
            container.setdefault("image", "heterotp/trainer:test")
        assert server.try_pod(spec, namespace)["spec"]["containers"][0]["name"] == names.CONTAINER


def test_misspelt_fields_are_refused(server):
    """The two tests above mean something."""
    queue = next(body for body in bodies(EXAMPLES / "kueue.yaml") if body["kind"] == "ClusterQueue")
    group = queue["spec"]["resourceGroups"][0]
    group["flavours"] = group.pop("flavors")
    queue["metadata"]["name"] = "misspelt"
    with pytest.raises(KubeError, match=r'unknown field "spec\.resourceGroups\[0\]\.flavours"'):
        server.create(queue, None)
    with pytest.raises(KubeError, match=r'unknown field "spec\.nodeselector"'):
        server.try_pod({"nodeselector": {}, "containers": [{"name": "trainer", "image": "i"}]}, "default")


@pytest.mark.parametrize("provider", ["volcano", "coscheduling"])
def test_the_operators_pod_group_is_accepted(server, provider):
    job = parse_object(jobs(EXAMPLES / "volcano.yaml")[0]).spec
    queue = job.run_policy.gang.queue if provider == "volcano" else None
    timeout = 60 if provider == "coscheduling" else None
    wanted = {"provider": provider, "queue": queue, "schedule_timeout_seconds": timeout, "priority_class_name": "high"}
    gang = job.run_policy.gang.model_copy(update=wanted)
    group = pod_group(gang, {"name": "ganged"}, len(ranks.pods(job)))
    stored = server.create(group, server.namespace())
    assert stored["spec"].items() >= group["spec"].items()
    assert stored["spec"]["minMember"] == 3


@pytest.fixture(scope="module")
def operated(server, new_operator):
    """A namespace in which an operator works and only restricted pods are let in."""
    make_namespace(server.kube, OPERATED)
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    server.kube.patch("namespaces", None, OPERATED, {"metadata": {"labels": restricted}})
    operator = new_operator(OPERATED, server.kubeconfig, HETEROTP_KUEUE="on").start()
    yield OPERATED
    assert operator.stop() == 0, operator.log.read_text()


@pytest.mark.parametrize("path", ON_CLUSTERS, ids=id_of)
def test_the_operator_makes_the_pods_of_every_job(server, operated, path):
    (body,) = jobs(path)
    gang = Gang(server.kube, operated, body)
    places = ranks.pods(parse_object(body).spec)
    wanted = {names.pod_name(gang.name, place.group, place.index, 1) for place in places}
    if path.stem == "kueue":
        until("a Workload", lambda: server.kube.get("workloads", operated, gang.name))
        assert gang.pods() == []
        admit(server.kube, operated, gang.name)
    made = lambda: {pod["metadata"]["name"] for pod in gang.pods()}  # noqa: E731
    until(lambda: f"{wanted}, not {made()}: {gang.status}", lambda: made() == wanted)
    if path.stem == "volcano":
        group = server.kube.request("GET", f"{POD_GROUPS}/namespaces/{operated}/podgroups/{gang.name}")
        assert group["spec"] | {"minMember": 3, "queue": "training"} == group["spec"]
        assert group["metadata"]["ownerReferences"][0]["uid"] == gang.body["metadata"]["uid"]
