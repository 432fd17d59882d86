"""values.schema.json: refused values, open values, and completeness with regard to values.yaml."""

import json
import re
import shutil

import pytest
import yaml
from jsonschema import Draft202012Validator
from support.rendered_chart import CHART, helm, one, render

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
ALLOWED_BESIDES = {"global", "enabled"}  # of a chart that has this one as a dependency
DIGEST = "sha256:" + "0" * 64
EVERYTHING_ON = (
    *(f"monitoring.{name}.enabled=true" for name in ("podMonitor", "serviceMonitor", "rules", "dashboards")),
    "networkPolicy.enabled=true",
)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("imge.tag=dev", "imge"),
        ("image.tagg=dev", "tagg"),
        ("image.tag=a b", "/image/tag"),
        ("image.digest=latest", "/image/digest"),
        (f"image.digest={DIGEST}00", "/image/digest"),
        ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
        ("trainerImage.pullPolicy=Always", "pullPolicy"),
        ("replicas=-1", "/replicas"),
        ("replicas=two", "/replicas"),
        ("namespaces=team-a", "/namespaces"),
        ("namespaces={Team_A}", "/namespaces/0"),
        ("crds.install=true", "install"),
        ("crds.keep=maybe", "/crds/keep"),
        ("rbac.aggregated=true", "aggregated"),
        ("gangProviders={kueue}", "/gangProviders/0"),
        ("affinity.nodeAfinity.a=b", "nodeAfinity"),
        ("topologySpreadConstraints[0].maxSkew=1", "/topologySpreadConstraints/0"),
        ("extraVolumes[0].emptyDir.medium=Memory", "/extraVolumes/0"),
        ("podDisruptionBudget.maxUnavailable=0", "/podDisruptionBudget/maxUnavailable"),
        ("podDisruptionBudget.minAvailable=1", "minAvailable"),
        ("monitoring.enabled=true", "enabled"),
        ("monitoring.podMonitor.enabled=yes please", "/monitoring/podMonitor/enabled"),
        ("metrics.tlsSecretName=My_Secret", "/metrics/tlsSecretName"),
        ("monitoring.podMonitor.interval=30 s", "/monitoring/podMonitor/interval"),
        ("monitoring.podMonitor.interval=30s1m", "/monitoring/podMonitor/interval"),  # the CRDs want large units first
        ("monitoring.serviceMonitor.scrapeTimeout=10ms1s", "/monitoring/serviceMonitor/scrapeTimeout"),
        ("monitoring.podMonitor.ranksPerPod=17", "/monitoring/podMonitor/ranksPerPod"),
        ("monitoring.podMonitor.honorLabels=true", "honorLabels"),
        ("monitoring.serviceMonitor.labels.release=1", "/monitoring/serviceMonitor/labels/release"),
        ("monitoring.rules.thresholds.slowdwn=2", "slowdwn"),
        ("monitoring.rules.thresholds.slowdown=0.5", "/monitoring/rules/thresholds/slowdown"),
        ("monitoring.rules.thresholds.pendingFor=30", "/monitoring/rules/thresholds/pendingFor"),
        ("monitoring.rules.level=all", "/monitoring/rules/level"),
        ("monitoring.rules.thresholds.prunedRatio=50", "/monitoring/rules/thresholds/prunedRatio"),
        ("monitoring.rules.runbookUrl=runbooks", "/monitoring/rules/runbookUrl"),
        ("monitoring.rules.operatorJob=a b", "/monitoring/rules/operatorJob"),
        ('monitoring.rules.operatorJob=a"', "/monitoring/rules/operatorJob"),
        ("monitoring.dashboards.labelValue=1", "/monitoring/dashboards/labelValue"),
        ("networkPolicy.scrapers[0].podSelektor.a=b", "podSelektor"),
        ("networkPolicy.apiServerPorts={0}", "/networkPolicy/apiServerPorts/0"),
        ("networkPolicy.hostNetworkRanks={10.0.0.1}", "/networkPolicy/hostNetworkRanks/0"),
        ("test.image=busybox", "image"),
        ("extraObjects[0]=7", "/extraObjects/0"),
        ("monitoring=null", "monitoring"),  # as `helm upgrade --reuse-values` leaves it, coming from an older chart
        ("monitoring.rules=null", "rules"),
        ("metrics=null", "metrics"),
        ("replicas=null", "replicas"),
        ("image.repository=null", "repository"),
        ("trainerImage.repository=null", "repository"),
        ("crds.keep=null", "keep"),
        ("podDisruptionBudget.maxUnavailable=null", "maxUnavailable"),
        ("monitoring.podMonitor.ranksPerPod=null", "ranksPerPod"),
        ("monitoring.serviceMonitor.sampleLimit=null", "sampleLimit"),
        ("monitoring.rules.runbookUrl=null", "runbookUrl"),
        ("monitoring.rules.thresholds.slowdown=null", "slowdown"),
        ("monitoring.dashboards.label=null", "label"),
        ("networkPolicy.apiServerPorts=null", "apiServerPorts"),  # without ports, a rule opens all of them
    ],
)
def test_an_unknown_or_wrong_value_is_refused_by_its_name(value, named):
    done = helm(value)
    assert done.returncode != 0
    assert named in done.stderr


@pytest.mark.parametrize(("version", "taken"), [("1.28.15", False), ("1.29.0", True), ("1.34.4-gke.100", True)])
def test_versions_of_kubernetes(version, taken):
    done = helm(arguments=("--kube-version", version))
    assert (done.returncode == 0) == taken
    assert taken or "1.29" in done.stderr


def test_the_schema_is_one_of_its_draft():
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(SCHEMA)


def known_and_given(schema, values, path=""):
    """Yield path, keys of the schema and keys of the defaults, for every closed object."""
    if schema.get("additionalProperties") is False:
        yield path, set(schema["properties"]), set(values)
        for key, inner in schema["properties"].items():
            if isinstance(values.get(key), dict):
                yield from known_and_given(inner, values[key], f"{path}.{key}")


def test_schema_and_defaults_know_the_same_values():
    found = {path: (known, given) for path, known, given in known_and_given(SCHEMA, DEFAULTS)}
    assert len(found) > 15
    for path, (known, given) in found.items():
        besides = {"": ALLOWED_BESIDES, ".affinity": known}.get(path, set())  # an affinity is Kubernetes' own object
        assert known - besides == given, path


# what templates take as "not given", beside everything whose default is empty
MAY_BE_NULL = {
    "gangProviders",
    "resources",
    "topologySpreadConstraints",
    "monitoring.podMonitor.interval",
    "monitoring.serviceMonitor.interval",
    "monitoring.dashboards.folder",
    "networkPolicy.scrapers",
}


def leaves(schema, values, path=""):
    """Yield path, default and whether the schema requires it, for every value."""
    for key, value in values.items():
        inner, here = schema["properties"][key], f"{path}{key}"
        if value and inner.get("additionalProperties") is False:
            assert key in schema["required"], here
            yield from leaves(inner, value, f"{here}.")
        else:
            yield here, value, key in schema.get("required", ())


def test_what_templates_cannot_do_without_is_required():
    found = list(leaves(SCHEMA, DEFAULTS))
    assert len(found) > 80
    assert {path for path, default, required in found if default not in ("", [], {}) and not required} == MAY_BE_NULL
    assert [path for path, default, required in found if default in ("", [], {}) and required] == []


@pytest.mark.parametrize("on", [(), EVERYTHING_ON], ids=["default", "everything on"])
def test_what_is_not_required_may_be_null(on):
    optional = [path for path, _, required in leaves(SCHEMA, DEFAULTS) if not required]
    assert len(optional) > 30
    assert {each["kind"] for each in render(*on, *(f"{path}=null" for path in optional))} >= {"Deployment"}


TEMPLATES = sorted(path for path in (CHART / "templates").rglob("*.*") if path.parent.name != "crds")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_ask_for_values_that_there_are(path):
    for used in re.findall(r"\.Values\.([\w.]+)", path.read_text()):
        value = DEFAULTS
        for name in used.rstrip(".").split("."):
            assert name in value, f"{path.name}: .Values.{used}"
            value = value[name]


@pytest.fixture
def parent(tmp_path):
    """A chart that depends on ours, with a condition."""
    chart = tmp_path / "parent"
    (chart / "charts").mkdir(parents=True)
    shutil.copytree(CHART, chart / "charts" / "heterotp")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    dependency = {"name": "heterotp", "version": version, "condition": "heterotp.enabled"}
    metadata = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(metadata))
    return chart


def test_a_parent_chart_may_have_globals_and_conditions(parent):
    values = {"global": {"imageRegistry": "mine", "deep": [{"er": 1}]}, "heterotp": {"enabled": True, "replicas": 3}}
    assert one(render(values=values, chart=parent), "Deployment")["spec"]["replicas"] == 3
    values["heterotp"]["enabled"] = False
    assert render(values=values, chart=parent) == []
