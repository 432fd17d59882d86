"""Monitors and dashboards: their selectors match existing objects, and scrapes have the labels of rules and boards."""

import json
import re
import shutil

import pytest
from heterotp_api import names
from heterotp_api.job import WorkerGroup
from heterotp_trainer.reporting.metrics import JobMetrics, RankMetrics
from prometheus_client.parser import text_string_to_metric_families
from support.reconcile_world import World, manifest
from support.rendered_chart import CHART, of_kind, one, pod_of, render, selects

SCRAPED = ("monitoring.podMonitor.enabled=true", "monitoring.serviceMonitor.enabled=true")
MOST_RANKS = next(rule.le for rule in WorkerGroup.model_fields["processes_per_pod"].metadata if hasattr(rule, "le"))
BOARD = {"uid": "heterotp-some", "panels": [{"targets": [{"legendFormat": "{{rank}} {{node}}"}]}], "html": "<b>&</b>"}


@pytest.fixture(scope="module")
def objects():
    return render(*SCRAPED)


def rank_pods(processes, port=9400):
    """Return the pods that the operator creates for a job with two groups."""
    world = World(manifest(groups=(("a", 1, processes), ("b", 2, 1)), metrics={"port": port}))
    world.settle()
    return list(world.pods.values())


def declared(pod, container):
    found = next(each for each in pod["spec"]["containers"] if each["name"] == container)
    return {port["name"]: port["containerPort"] for port in found["ports"]}


def meta(pod):
    """Return the labels of Prometheus' pod discovery for a pod, as far as the chart uses them."""
    labels = {re.sub(r"\W", "_", name): value for name, value in pod["metadata"]["labels"].items()}
    return {
        **{f"__meta_kubernetes_pod_label_{name}": value for name, value in labels.items()},
        "__meta_kubernetes_namespace": pod["metadata"]["namespace"],
        "__meta_kubernetes_pod_name": pod["metadata"]["name"],
        "__meta_kubernetes_pod_node_name": "node-7",
    }


def relabelled(source, relabelings):
    """Return the labels that relabelings set; all of ours have the action replace and whole values."""
    out = {}
    for each in relabelings:
        assert set(each) <= {"sourceLabels", "targetLabel", "replacement"}, each
        given = ";".join(source[name] for name in each.get("sourceLabels", ()))
        out[each["targetLabel"]] = each.get("replacement", given)
    return out


# -- the operator ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("release", "namespace"), [("r", "system"), ("heterotp", "monitoring"), ("x" * 53, "a")])
def test_the_service_monitor_finds_the_operator(release, namespace):
    objects = render(*SCRAPED, release=release, namespace=namespace)
    monitor, service, pod = one(objects, "ServiceMonitor")["spec"], one(objects, "Service"), pod_of(objects)
    assert selects(monitor["selector"], service["metadata"]["labels"])
    assert monitor["namespaceSelector"] == {"matchNames": [service["metadata"]["namespace"]]}
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (endpoint,), (port,) = monitor["endpoints"], service["spec"]["ports"]
    assert endpoint["port"] == port["name"]
    assert declared(pod, "operator")[port["targetPort"]] == port["port"] == 8080


def test_nothing_but_the_operator_is_behind_its_service(objects):
    selector = one(objects, "Service")["spec"]["selector"]
    others = [one(objects, "Pod"), *rank_pods(2)]
    assert not [pod for pod in others if selector.items() <= pod["metadata"]["labels"].items()]


def test_the_operators_metrics_keep_their_namespace(objects):
    (endpoint,) = one(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True
    assert relabelled({}, endpoint["relabelings"]) == {"job": "heterotp-operator"}


def test_the_operator_is_scraped_under_the_name_that_alerts_ask_for():
    monitor = one(render(*SCRAPED, "monitoring.rules.operatorJob=mine"), "ServiceMonitor")["spec"]
    assert relabelled({}, monitor["endpoints"][0]["relabelings"]) == {"job": "mine"}


def test_the_operator_is_scraped_over_tls_where_it_serves_so():
    objects = render(*SCRAPED, "metrics.tlsSecretName=operator-tls")
    (endpoint,), (port,) = one(objects, "ServiceMonitor")["spec"]["endpoints"], one(objects, "Service")["spec"]["ports"]
    assert (endpoint["scheme"], port["appProtocol"]) == ("https", "https")
    authority = {"secret": {"name": "operator-tls", "key": "ca.crt"}}
    assert endpoint["tlsConfig"] == {"ca": authority, "serverName": "r-operator.system.svc"}
    (plain,) = one(render(*SCRAPED), "ServiceMonitor")["spec"]["endpoints"]
    assert not {"scheme", "tlsConfig"} & set(plain)
    ranks = one(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert not [each for each in ranks if {"scheme", "tlsConfig"} & set(each)]


# -- the ranks ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("processes", [1, 2, MOST_RANKS])
def test_the_pod_monitor_finds_every_rank(objects, processes):
    monitor = one(objects, "PodMonitor")["spec"]
    scraped = {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]}
    pods = rank_pods(processes, port=9500)
    assert len(pods) == 3
    for pod, local_ranks in zip(pods, (processes, 1, 1), strict=True):
        assert selects(monitor["selector"], pod["metadata"]["labels"])
        ports = {name: number for name, number in declared(pod, names.CONTAINER).items() if name in scraped}
        assert sorted(ports.values()) == [9500 + local for local in range(local_ranks)]


def test_the_pod_monitor_leaves_other_pods_alone(objects):
    selector = one(objects, "PodMonitor")["spec"]["selector"]
    assert not selects(selector, pod_of(objects)["metadata"]["labels"])
    assert not selects(selector, one(objects, "Pod")["metadata"]["labels"])


def test_every_endpoint_labels_namespace_pod_job_and_node(objects):
    pod = rank_pods(1)[0]
    for endpoint in one(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]:
        assert relabelled(meta(pod), endpoint["relabelings"]) == {
            "namespace": "team",
            "pod": pod["metadata"]["name"],
            "heterotpjob": "job",
            "node": "node-7",
            "job": "heterotp-trainer",
        }


def test_fewer_endpoints_where_pods_have_fewer_ranks():
    monitor = one(render(*SCRAPED, "monitoring.podMonitor.ranksPerPod=2"), "PodMonitor")["spec"]
    assert [endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]] == ["metrics-0", "metrics-1"]


@pytest.mark.parametrize(
    ("values", "selector"),
    [((), {"any": True}), (("namespaces={team-a,team-b}",), {"matchNames": ["team-a", "team-b"]})],
    ids=["cluster", "namespaced"],
)
def test_ranks_are_sought_where_the_operator_serves(values, selector):
    assert one(render(*SCRAPED, *values), "PodMonitor")["spec"]["namespaceSelector"] == selector


def test_the_largest_exposition_is_within_the_limits(objects):
    monitor = one(objects, "PodMonitor")["spec"]
    metrics = RankMetrics(0, "full")
    JobMetrics(metrics.registry, 16, 1, "gloo")
    metrics.injected(2.0)
    families = text_string_to_metric_families(metrics.text()[0].decode())
    samples = [sample for family in families for sample in family.samples]
    assert 40 < len(samples) <= monitor["sampleLimit"] == 200
    from_the_scrape = 8  # job, instance, namespace, pod, container, endpoint, heterotpjob, node
    assert max(len(sample.labels) for sample in samples) + from_the_scrape <= monitor["labelLimit"] == 30


# -- both -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("value", "kind"), [("podMonitor", "PodMonitor"), ("serviceMonitor", "ServiceMonitor")])
class TestMonitor:
    def test_is_off_by_default(self, value, kind):
        assert of_kind(render(), kind) == []

    def test_takes_labels_and_annotations(self, value, kind):
        given = {"labels": {"release": "kps", "app.kubernetes.io/name": "mine"}, "annotations": {"note": "1"}}
        metadata = one(render(values={"monitoring": {value: {"enabled": True, **given}}}), kind)["metadata"]
        assert metadata["labels"]["release"] == "kps"
        assert metadata["labels"]["app.kubernetes.io/name"] == "heterotp"
        assert metadata["annotations"] == {"note": "1"}

    def test_takes_times_limits_and_relabelings(self, value, kind):
        more, samples = {"targetLabel": "cluster", "replacement": "east"}, {"regex": "a", "action": "labeldrop"}
        given = {"interval": "15s", "scrapeTimeout": "5s", "sampleLimit": 7, "labelLimit": 8}
        given |= {"relabelings": [more], "metricRelabelings": [samples]}
        spec = one(render(values={"monitoring": {value: {"enabled": True, **given}}}), kind)["spec"]
        assert (spec["sampleLimit"], spec["labelLimit"]) == (7, 8)
        for endpoint in spec.get("endpoints") or spec["podMetricsEndpoints"]:
            assert (endpoint["interval"], endpoint["scrapeTimeout"], endpoint["path"]) == ("15s", "5s", "/metrics")
            assert (endpoint["relabelings"][-1], endpoint["metricRelabelings"]) == (more, [samples])

    def test_leaves_to_prometheus_what_is_empty(self, value, kind):
        given = {"interval": "", "sampleLimit": 0, "labelLimit": 0}
        spec = one(render(values={"monitoring": {value: {"enabled": True, **given}}}), kind)["spec"]
        assert not {"sampleLimit", "labelLimit"} & set(spec)
        for endpoint in spec.get("endpoints") or spec["podMetricsEndpoints"]:
            assert not {"interval", "scrapeTimeout", "metricRelabelings"} & set(endpoint)


# -- dashboards -----------------------------------------------------------------------------------------------
@pytest.fixture
def chart(tmp_path):
    """The chart with two test boards instead of its own."""
    copy = shutil.copytree(CHART, tmp_path / "heterotp")
    shutil.rmtree(copy / "files" / "dashboards", ignore_errors=True)
    (copy / "files" / "dashboards").mkdir()
    for name in ("heterotp-some", "heterotp-other"):
        (copy / "files" / "dashboards" / f"{name}.json").write_text(json.dumps(BOARD, indent=2) + "\n")
    return copy


def boards(objects):
    return [each for each in of_kind(objects, "ConfigMap") if "-dashboard-" in each["metadata"]["name"]]


def test_every_dashboard_is_a_config_map_with_its_text_unharmed(chart):
    found = boards(render("monitoring.dashboards.enabled=true", chart=chart))
    assert {each["metadata"]["name"] for each in found} == {"r-dashboard-some", "r-dashboard-other"}
    assert {key for each in found for key in each["data"]} == {"heterotp-some.json", "heterotp-other.json"}
    for each in found:
        assert [json.loads(text) for text in each["data"].values()] == [BOARD]


def test_the_sidecar_finds_them(chart):
    for each in boards(render("monitoring.dashboards.enabled=true", chart=chart)):
        assert each["metadata"]["namespace"] == "system"
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"k8s-sidecar-target-directory": "HeteroTP"}


def test_another_sidecar_finds_them(chart):
    dashboards = {"enabled": True, "namespace": "grafana", "label": "boards", "labelValue": "yes", "folder": "GPUs"}
    dashboards |= {"folderAnnotation": "folder", "labels": {"team": "platform"}, "annotations": {"note": "1"}}
    for each in boards(render(values={"monitoring": {"dashboards": dashboards}}, chart=chart)):
        metadata = each["metadata"]
        assert metadata["namespace"] == "grafana"
        assert {"boards": "yes", "team": "platform"}.items() <= metadata["labels"].items()
        assert "grafana_dashboard" not in metadata["labels"]
        assert metadata["annotations"] == {"folder": "GPUs", "note": "1"}


def test_dashboards_are_off_by_default_and_need_no_folder(chart):
    assert boards(render(chart=chart)) == []
    found = boards(render("monitoring.dashboards.enabled=true", "monitoring.dashboards.folder=", chart=chart))
    assert len(found) == 2
    assert not [each for each in found if "annotations" in each["metadata"]]
