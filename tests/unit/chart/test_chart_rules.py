"""The chart's PrometheusRule and boards equal those of dashboards/, with values of the chart."""

import json

import pytest
import yaml
from support.places import ROOT
from support.rendered_chart import helm, of_kind, one, render

ON = "monitoring.rules.enabled=true"
BOARDS_ON = "monitoring.dashboards.enabled=true"
P = "monitoring.rules.thresholds."


def groups(*values):
    """Return the groups of the rendered PrometheusRule."""
    return one(render(ON, *values), "PrometheusRule")["spec"]["groups"]


def alerts(*values):
    return {rule["alert"]: rule for group in groups(*values) for rule in group["rules"] if "alert" in rule}


def test_rules_are_those_of_the_plain_file():
    assert of_kind(render(), "PrometheusRule") == []
    assert groups() == yaml.safe_load((ROOT / "dashboards" / "heterotp-rules.yaml").read_text())["groups"]


def test_numbers_of_rules_are_values():
    changed = alerts(
        f"{P}slowdown=3.5",
        f"{P}stragglerFor=1h30m",
        f"{P}stragglerKeepFiringFor=1m",
        f"{P}handlerErrorRatio=0.001",
        f"{P}stalledSeconds=86400",
        f"{P}handlerSeconds=2.5",
        "monitoring.rules.runbookUrl=https://runbooks.test/{alert}/",
        "monitoring.rules.operatorJob=mine",
    )
    straggler = changed["HeteroTPJobStragglerUnmitigated"]
    assert "slowdown:ratio > 3.5\n" in straggler["expr"]
    assert (straggler["for"], straggler["keep_firing_for"]) == ("1h30m", "1m")
    assert changed["HeteroTPOperatorHandlerErrors"]["expr"].endswith("> 0.001")
    assert changed["HeteroTPOperatorHandlerSlow"]["expr"].endswith(">= 2.5")
    assert "[86400s]" in changed["HeteroTPJobStalled"]["expr"]
    assert straggler["annotations"]["runbook_url"] == "https://runbooks.test/HeteroTPJobStragglerUnmitigated/"
    assert changed["HeteroTPOperatorAbsent"]["expr"] == 'absent(up{job="mine"} == 1)'


def test_level_basic_records_one_series_per_rank():
    rules = [rule for group in groups("monitoring.rules.level=basic") for rule in group["rules"]]
    of_ranks = [rule["record"] for rule in rules if rule.get("record", "").startswith("namespace_heterotpjob_rank:")]
    assert of_ranks == ["namespace_heterotpjob_rank:heterotp_busy_seconds:mean5m"]


def test_rules_carry_the_labels_that_a_prometheus_selects_by():
    rule = one(render(ON, "monitoring.rules.labels.release=kps"), "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "kps"
    assert rule["metadata"]["labels"]["app.kubernetes.io/name"] == "heterotp"


@pytest.mark.parametrize(
    "value",
    [
        "slowdown=fast",
        "imbalance=0.9",
        "stragglerFor=10",
        "pendingFor=5m2h",
        "handlerSeconds=30",
        "handlerSeconds=10.5",
        "handlerSeconds=0.0",
        "stalledSeconds=0.5",
    ],
)
def test_a_threshold_that_makes_no_rule_is_refused(value):
    done = helm(ON, P + value)
    assert done.returncode != 0 and f"thresholds/{value.partition('=')[0]}'" in done.stderr


def test_boards_are_those_of_the_plain_files():
    maps = [each for each in of_kind(render(BOARDS_ON), "ConfigMap") if "-dashboard-" in each["metadata"]["name"]]
    shipped = {name: json.loads(text) for each in maps for name, text in each["data"].items()}
    plain = {path.name: json.loads(path.read_text()) for path in (ROOT / "dashboards").glob("*.json")}
    assert len(plain) == 3 and shipped == plain


def test_boards_offer_the_data_sources_that_a_value_names():
    pattern = r'/^("prod"|dev\d)-<prometheus>/'
    for each in of_kind(
        render(BOARDS_ON, values={"monitoring": {"dashboards": {"datasourceRegex": pattern}}}), "ConfigMap"
    ):
        for text in each["data"].values():
            variables = {v["name"]: v for v in json.loads(text)["templating"]["list"]}
            assert variables["datasource"]["regex"] == pattern
