"""The pages about monitoring agree with the code: runbooks, metrics, queries, panels, scrape configuration."""

import json
import re

import promql_parser
import pytest
import yaml
from reference import metrics
from support.pages import DOCS, PROSE, RUNBOOKS, blocks, each_of
from support.places import ROOT
from support.rendered_chart import one, render

ALERTS = sorted(page.stem for page in RUNBOOKS.glob("HeteroTP*.md"))
PACKAGES = {"heterotp_trainer", "heterotp_cli", "heterotp_api", "heterotp_operator"}
NO_METRICS = {*PACKAGES, "heterotp_io_job", "heterotp_tp", "heterotp_"}  # an example's file has one of these names


# -- runbooks ----------------------------------------------------------------------------------------------------


def rules(kind):
    """Return the rules by name: `alert` or `record`."""
    groups = yaml.safe_load((ROOT / "dashboards" / "heterotp-rules.yaml").read_text())["groups"]
    return {rule[kind]: rule for part in groups for rule in part["rules"] if kind in rule}


def test_every_alert_has_a_runbook_and_no_runbook_is_left_over():
    assert sorted(rules("alert")) == ALERTS


def test_the_runbooks_index_tells_severities_as_the_rules_do():
    index = (RUNBOOKS / "index.md").read_text()
    for name, alert in rules("alert").items():
        severity = alert["labels"]["severity"]
        assert f"| [{name}]({name}.md) | {severity} |" in index
        assert f"\n*{severity}, " in (RUNBOOKS / f"{name}.md").read_text()


@pytest.mark.parametrize("alert", ALERTS)
def test_a_runbook_says_what_it_means_where_to_look_what_to_do_and_when_it_is_nothing(alert):
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert text.startswith(f"# {alert}\n")
    headings = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert headings[0] == "What it means"
    assert {"Look", "It is nothing when"} <= set(headings)
    assert any(heading.startswith("Do") for heading in headings)
    assert len(text.splitlines()) <= 90, "short enough for an on-call engineer"


# -- metrics, queries, panels --------------------------------------------------------------------------------------


@each_of(PROSE)
def test_metrics_that_are_named_exist(page):
    exported = set(re.findall(r"^\| `((?:heterotp|process)_\w+)`", metrics.page(), flags=re.MULTILINE))
    named = set(re.findall(r"\b(?:heterotp|process)_[a-z_]+\b", page.read_text())) - NO_METRICS
    recorded = re.compile(r":(heterotp_[a-z_]+):")
    named -= set(recorded.findall(page.read_text()))
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in named} - exported == set()


def test_recorded_series_that_are_named_exist():
    text = "\n".join(page.read_text() for page in PROSE)
    named = set(re.findall(r"\bnamespace(?:_heterotpjob(?:_rank)?)?:heterotp_\w+:\w+", text))
    assert len(named) >= 6
    assert named <= set(rules("record"))


def test_queries_are_promql():
    queries = [line for page in PROSE for block in blocks(page, "promql") for line in block.splitlines()]
    assert len(queries) > 20
    for query in queries:
        promql_parser.parse(query)  # raises ValueError


def italics(paragraph):
    """Return the words between single asterisks."""
    return re.findall(r"(?<![*\w])\*([^*]+)\*(?!\*)", " ".join(paragraph.split()))


def test_panels_that_are_named_exist():
    """Words in italics in a paragraph that names a board are titles of its panels or rows."""
    checked = 0
    for paragraph in (text for page in PROSE for text in page.read_text().split("\n\n") if not text.startswith("|")):
        board = re.search(r"\bboard(?:'s row| `heterotp-([a-z]+)`)", paragraph, flags=re.IGNORECASE)
        if board is not None:
            panels = json.loads((ROOT / "dashboards" / f"heterotp-{board[1] or 'straggler'}.json").read_text())[
                "panels"
            ]
            titles = {panel["title"] for row in panels for panel in (row, *row.get("panels", ()))}
            assert set(italics(paragraph)) <= titles
            checked += len(italics(paragraph))
    assert checked > 20


# -- a Prometheus without the operator -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written():
    """The relabelings of the page's scrape configuration, by job."""
    (block,) = (text for text in blocks(DOCS / "monitoring.md", "yaml") if "scrape_configs" in text)
    return {each["job_name"]: each["relabel_configs"] for each in yaml.safe_load(block)["scrape_configs"]}


@pytest.fixture(scope="module")
def monitors():
    return render("monitoring.podMonitor.enabled=true", "monitoring.serviceMonitor.enabled=true")


def labels(relabelings, sources, target):
    """Return the labels that relabelings set, with their sources."""
    return {rule[target]: rule[sources] for rule in relabelings if rule.get(sources) and target in rule}


def test_ranks_get_the_labels_that_the_chart_gives_them(written, monitors):
    own = labels(written["heterotp-trainer"], "source_labels", "target_label")
    assert set(own) == {"namespace", "heterotpjob", "node", "pod"}
    for endpoint in one(monitors, "PodMonitor")["spec"]["podMetricsEndpoints"]:
        assert own == labels(endpoint["relabelings"], "sourceLabels", "targetLabel")


def test_jobs_are_called_as_the_chart_calls_them(written, monitors):
    ranks = one(monitors, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["relabelings"]
    (operator,) = one(monitors, "ServiceMonitor")["spec"]["endpoints"]
    given = [rule for rule in ranks + operator["relabelings"] if rule["targetLabel"] == "job"]
    assert sorted(rule["replacement"] for rule in given) == sorted(written)


def test_the_operators_pods_are_told_apart(written):
    """The operator's board has a line per pod; the Prometheus operator sets this label."""
    assert labels(written["heterotp-operator"], "source_labels", "target_label") == {
        "pod": ["__meta_kubernetes_pod_name"]
    }


def test_the_page_names_the_labels_of_the_scrape(monitors):
    ranks = one(monitors, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["relabelings"]
    names = list(labels(ranks, "sourceLabels", "targetLabel"))
    row = re.search(r"^\| PodMonitor \| .*; sets (.*) \| ", (DOCS / "monitoring.md").read_text(), flags=re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", row[1])) == sorted(names)
