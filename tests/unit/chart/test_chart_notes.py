"""NOTES.txt: access to metrics, labels for Prometheus, and warnings about unusual values."""

import pytest
from support.rendered_chart import one, render

# `helm template` renders NOTES.txt but does not show it; an extra object can
SHOWN = """\
apiVersion: v1
kind: Notes
metadata: {name: notes}
text: {{ include "heterotp/templates/NOTES.txt" . | toJson }}
"""


def notes(*sets, **how):
    return one(render(*sets, values={"extraObjects": [SHOWN]}, **how), "Notes")["text"]


def warnings(*sets):
    return [line.removeprefix("WARNING: ") for line in notes(*sets).splitlines() if line.startswith("WARNING: ")]


POD, SERVICE, RULES_ALONE, BOARDS = (
    f"monitoring.{name}.enabled=true" for name in ("podMonitor", "serviceMonitor", "rules", "dashboards")
)
RULES = f"{RULES_ALONE},monitoring.rules.runbookUrl=https://docs.test/runbooks/{{alert}}/"
POLICY = "networkPolicy.enabled=true"
NO_SCRAPERS = "networkPolicy.scrapers=null"


def times(monitor, interval, timeout):
    return f"monitoring.{monitor}.interval={interval},monitoring.{monitor}.scrapeTimeout={timeout}"


@pytest.mark.parametrize(
    ("values", "starts"),
    [
        ((RULES,), ["monitoring.rules.enabled without monitoring.podMonitor.enabled and monitoring.serviceMonitor"]),
        (
            (RULES, SERVICE),
            ["monitoring.rules.enabled without monitoring.podMonitor.enabled: HeteroTPJobMetricsMissing"],
        ),
        ((RULES, POD), ["monitoring.rules.enabled without monitoring.serviceMonitor.enabled: HeteroTPOperatorAbsent"]),
        ((RULES, POD, SERVICE, BOARDS), []),
        ((RULES_ALONE, POD, SERVICE), ["monitoring.rules.runbookUrl is no URL"]),
        ((POD, times("podMonitor", "15s", "20s")), ["monitoring.podMonitor.scrapeTimeout is longer than its interval"]),
        ((SERVICE, times("serviceMonitor", "1m", "1m1ms")), ["monitoring.serviceMonitor.scrapeTimeout is longer"]),
        ((SERVICE, times("serviceMonitor", "1m", "60s")), []),
        ((POD, times("podMonitor", "1h", "59m60s")), []),
        ((POD, times("podMonitor", "", "20s")), []),
        ((times("podMonitor", "15s", "20s"),), []),
        ((POD, POLICY, NO_SCRAPERS), ["networkPolicy.enabled with no networkPolicy.scrapers"]),
        ((SERVICE, POLICY, NO_SCRAPERS), ["networkPolicy.enabled with no networkPolicy.scrapers"]),
        ((POLICY, NO_SCRAPERS), []),
        ((POD, POLICY), []),
        ((BOARDS,), ["monitoring.dashboards.enabled without monitoring.rules.enabled"]),
        ((POLICY,), []),
        ((POLICY, "networkPolicy.jobs=false"), ["networkPolicy.jobs is off"]),
        (("networkPolicy.jobs=false",), []),
        (("crds.keep=false",), ["crds.keep is off"]),
        (("rbac.create=false",), ["`helm test` has nothing to run"]),
        (("rbac.create=false", "test.serviceAccountName=tester"), []),
        (("rbac.create=false", "test.enabled=false"), []),
        (("replicas=0",), ["replicas is 0"]),
        ((), []),
    ],
    ids=lambda each: "+".join(each) or "nothing",
)
def test_warnings(values, starts):
    found = warnings(*values)
    assert len(found) == len(starts)
    assert all(text.startswith(start) for text, start in zip(found, starts, strict=True))


def test_how_to_see_metrics():
    text = notes(release="mine", namespace="gpu")
    assert "kubectl -n gpu port-forward deployment/mine-operator 8080" in text
    assert "helm -n gpu test mine" in text
    assert "serves all namespaces" in text
    assert "release" not in text  # nothing about Prometheus' selectors where no monitor is installed


def test_which_labels_prometheus_needs():
    text = notes(POD, RULES_ALONE, "monitoring.podMonitor.labels.release=kps")
    assert "podMonitorSelector" in text
    lines = [line.strip() for line in text.splitlines()]
    assert "PodMonitor, labelled release=kps" in lines
    assert "PrometheusRule, with no label of yours (monitoring.rules.labels)" in lines
    assert not [line for line in lines if line.startswith("ServiceMonitor,")]


def test_the_namespaces_that_are_served():
    assert "serves the namespaces team-a, team-b." in notes("namespaces={team-a,team-b}")
    assert "helm -n system test" not in notes("test.enabled=false")
