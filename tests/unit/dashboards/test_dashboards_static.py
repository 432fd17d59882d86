"""Static checks of boards, rules and alerts: form, positions, names, and up-to-date generated files."""

import copy
import itertools
import json
import re
from collections import Counter

import pytest
import yaml
from heterotp_dashboards.alerts import Thresholds, alerting
from heterotp_dashboards.boards import boards
from heterotp_dashboards.generate import main
from heterotp_dashboards.rule_files import prometheus_rules
from heterotp_dashboards.rules import Alert, Record, recording
from support.board_queries import panels
from support.expositions import known_metrics
from support.places import ROOT
from support.promql import Reader, counters_without_rate

BOARDS = {board["uid"]: board for board in boards()}
KNOWN = known_metrics()
KINDS = {"timeseries", "stat", "bargauge", "table", "heatmap", "state-timeline", "barchart"}
WITH_LEGEND = {"timeseries", "bargauge", "state-timeline", "barchart"}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
RULES = [rule for group in (*recording(), *alerting(Thresholds(), "heterotp-operator")) for rule in group.rules]
ALERTS = [rule for rule in RULES if isinstance(rule, Alert)]
every_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def every_panel():
    return [
        pytest.param(panel, id=f"{uid}: {panel['title']}") for uid, board in BOARDS.items() for panel in panels(board)
    ]


def queries_of(board):
    """Yield (where, expr) of every panel, annotation and variable of a board."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for annotation in board["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def complaints(expr):
    reader = Reader(KNOWN)
    reader.read(expr)
    return reader.complaints


def labels(expr):
    return Reader(KNOWN).read(expr)


# -- names ------------------------------------------------------------------------------------------------------


@every_board
def test_boards_query_only_known_metrics_and_labels(board):
    assert [(where, wrong) for where, expr in queries_of(board) for wrong in complaints(expr)] == []


@every_board
def test_variables_query_only_known_labels(board):
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
            assert found, variable["query"]
            assert complaints(found[1]) == []
            assert found[2] in labels(found[1])
            assert variable["refresh"] == 2, "new jobs appear over time"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rules_query_only_known_metrics_and_labels(rule):
    assert complaints(rule.expr) == []


@pytest.mark.parametrize("rule", [rule for rule in RULES if isinstance(rule, Record)], ids=lambda rule: rule.name)
def test_a_recorded_series_has_the_labels_of_its_level(rule):
    assert labels(rule.expr) == KNOWN[rule.name].labels


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_alert_texts_use_only_labels_of_their_expression(alert):
    texts = f"{alert.summary} {alert.description}"
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels(alert.expr)
    assert alert.board in BOARDS


STRANGE = {
    "no such metric: heterotp_phase_secs_total": "sum(rate(heterotp_phase_secs_total[5m]))",
    "heterotp_iterations_total has no label phase": 'heterotp_iterations_total{phase="wait"}',
    "heterotp_phase_seconds_total: no phase is like waiting": 'heterotp_phase_seconds_total{phase="waiting"}',
    "heterotp_operator_reconcile_total: no result is like failed": 'heterotp_operator_reconcile_total{result="failed"}',
    "heterotp_operator_leader has no label heterotpjob": 'heterotp_operator_leader{heterotpjob="a"}',
    "sum: there is no label tp_rank": "sum by (tp_rank) (heterotp_policy_generation)",
    "on, right: there is no label rank": "heterotp_pruned_ratio * on (rank) sum by (node) (heterotp_pruned_ratio)",
    "group_left: there is no label pod": "heterotp_loss * on (rank) group_left (pod) "
    "sum by (rank) (heterotp_pruned_ratio)",
    "label_join: there is no label tpRank": 'label_join(heterotp_pruned_ratio, "who", "-", "tpRank")',
    "without: name the labels to group by instead": "sum without (rank) (heterotp_pruned_ratio)",
    "+: nothing matches, ['node'] stand on one side alone": "sum by (rank, node) (heterotp_pruned_ratio) "
    "+ sum by (rank) (heterotp_migrated_ratio)",
    "histogram_quantile: there is no label le": "histogram_quantile(0.5, sum(rate(heterotp_step_seconds_bucket[5m])))",
}


@pytest.mark.parametrize("wrong", STRANGE)
def test_a_wrong_name_is_found(wrong):
    found = complaints(STRANGE[wrong])
    assert wrong in found or (wrong.startswith("group_left") and found), found


def test_a_syntax_error_is_found():
    assert complaints("sum(rate(heterotp_iterations_total[5m])")[0].startswith("does not parse")


# -- queries ----------------------------------------------------------------------------------------------------


@every_board
def test_rates_use_the_window_of_grafana(board):
    for panel in panels(board):
        for target in panel["targets"]:
            found = re.findall(r"\b(i?rate|increase|delta)\([^[]*\[([^\]]+)\]( @ end\(\))?", target["expr"])
            for function, window, at_end in found:  # the whole range has one value: of a moment, or of its end
                good = {"$__rate_interval"} | ({"$__range"} if target["instant"] or at_end else set())
                assert window in good, f"{panel['title']}: {function}[{window}]"


@every_board
def test_no_counter_is_shown_without_rate(board):
    for panel in panels(board):
        for target in panel["targets"]:
            assert list(counters_without_rate(target["expr"])) == [], panel["title"]


@pytest.mark.parametrize("panel", every_panel())
def test_legends_use_known_labels_and_show_ranks_with_nodes(panel):
    for target in panel["targets"]:
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        found = labels(target["expr"])
        assert named <= found
        if target.get("format") == "table":
            continue
        assert target["legendFormat"], f"{target['expr']}: no legend"
        if "rank" in found:
            assert {"rank", "node"} <= named, target["expr"]


# -- form -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("panel", every_panel())
def test_a_panel_has_title_description_unit_and_data_source(panel):
    assert panel["type"] in KINDS
    assert panel["title"]
    assert "Good:" in panel["description"], "a description names good values"
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == DATASOURCE
    assert panel["targets"] and all(target["datasource"] == DATASOURCE for target in panel["targets"])
    assert max(Counter(target["refId"] for target in panel["targets"]).values()) == 1
    if panel["type"] in WITH_LEGEND:
        assert panel["options"]["legend"]["showLegend"] is True


def places(board):
    """Return the rectangle of every panel, including those of collapsed rows."""
    return [(panel["title"], panel["gridPos"]) for panel in (*board["panels"], *panels(board))]


def overlapping(board):
    found = []
    shown = {id(panel): panel for panel in (*board["panels"], *panels(board))}.values()
    for one, other in itertools.combinations(shown, 2):
        a, b = one["gridPos"], other["gridPos"]
        if (
            a["x"] < b["x"] + b["w"]
            and b["x"] < a["x"] + a["w"]
            and a["y"] < b["y"] + b["h"]
            and b["y"] < a["y"] + a["h"]
        ):
            found.append((one["title"], other["title"]))
    return found


@every_board
def test_panels_do_not_overlap_and_stay_inside_the_grid(board):
    assert overlapping(board) == []
    assert all(place["x"] + place["w"] <= 24 for _, place in places(board))


def test_an_overlap_is_found():
    board = copy.deepcopy(BOARDS["heterotp-straggler"])
    board["panels"][2]["gridPos"]["x"] -= 1
    assert overlapping(board) == [("Slowest rank", "Imbalance")]


@every_board
def test_ids_are_unique(board):
    ids = [panel["id"] for panel in board["panels"]] + [
        panel["id"] for row in board["panels"] if row["type"] == "row" for panel in row["panels"]
    ]
    assert len(ids) == len(set(ids)) and 0 not in ids


@every_board
def test_every_variable_is_used_and_defined(board):
    defined = [variable["name"] for variable in board["templating"]["list"]]
    text = json.dumps(board)
    used = set(re.findall(r"\$\{?([a-z]\w*)\b", text)) - {"datasource"}
    assert len(defined) == len(set(defined))
    assert used == set(defined) - {"datasource"}
    assert all(variable.get("datasource", DATASOURCE) == DATASOURCE for variable in board["templating"]["list"])


@every_board
def test_a_board_as_a_whole(board):
    assert board["editable"] is False and board["timezone"] == "utc" and board["graphTooltip"] == 1
    assert board["tags"] == ["heterotp"] and board["refresh"] == "30s" and board["description"]
    (link,) = board["links"]
    assert link["type"] == "dashboards" and link["tags"] == ["heterotp"] and link["keepTime"] and link["includeVars"]
    assert "placement" not in link
    assert all(each["datasource"] == DATASOURCE and each["enable"] for each in board["annotations"]["list"])
    assert "__inputs" not in board and "DS_PROMETHEUS" not in json.dumps(board)
    assert len(board["uid"]) <= 40 and len(json.dumps(board)) < 2**20 / len(BOARDS)  # all in one ConfigMap


@every_board
def test_the_cluster_label_is_optional(board):
    (cluster,) = (variable for variable in board["templating"]["list"] if variable["name"] == "cluster")
    assert cluster["allValue"] == ".*" and cluster["hide"] == 2 and cluster["current"]["value"] == "$__all"
    assert all("cluster=" not in expr.replace('cluster=~"$cluster"', "") for _, expr in queries_of(board))


def test_the_data_source_pattern_can_be_found_and_replaced():
    assert all(json.dumps(board).count('"/.*/"') == 1 for board in BOARDS.values())


def test_links_between_boards_and_from_a_job_to_its_pods():
    text = {uid: json.dumps(board) for uid, board in BOARDS.items()}
    assert "/d/heterotp-straggler?" in text["heterotp-fleet"]
    assert "var-heterotpjob=${__data.fields.job}" in text["heterotp-fleet"]
    assert "var-pod=${__data.fields.pod}" in text["heterotp-straggler"]


def test_annotations_on_the_time_axis():
    names = [annotation["name"] for annotation in BOARDS["heterotp-straggler"]["annotations"]["list"]]
    assert names == ["Policy change", "Injection", "Restart", "Re-shard", "Alert"]


def test_the_row_machines_is_collapsed():
    rows = {panel["title"]: panel for panel in BOARDS["heterotp-straggler"]["panels"] if panel["type"] == "row"}
    assert list(rows) == ["Now", "Stragglers", "Balancing", "Learning", "Machines"]
    assert [title for title, row in rows.items() if row["collapsed"]] == ["Machines"]
    assert len(rows["Machines"]["panels"]) == 7


# -- files ------------------------------------------------------------------------------------------------------


def test_generated_files_are_up_to_date(tmp_path):
    main(tmp_path)
    made = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert len(made) == 8
    assert [str(path) for path in made if (ROOT / path).read_text() != (tmp_path / path).read_text()] == []


def test_every_threshold_has_a_value_of_the_chart():
    from dataclasses import asdict

    from heterotp_dashboards.rule_files import camel

    values = yaml.safe_load((ROOT / "charts" / "heterotp" / "values.yaml").read_text())["monitoring"]["rules"]
    assert {camel(name): default for name, default in asdict(Thresholds()).items()} == {
        name: str(value) for name, value in values["thresholds"].items()
    }


def test_rules_are_named_after_their_level_and_alerts_after_what_they_are_about():
    groups = yaml.safe_load(prometheus_rules(Thresholds()))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    records, alerts = ([r[kind] for r in rules if kind in r] for kind in ("record", "alert"))
    assert all(re.fullmatch(r"namespace\w*:heterotp_\w+:\w+", name) for name in records)
    assert all(re.fullmatch(r"HeteroTP(Job|Operator)[A-Z]\w+", name) for name in alerts)
    assert len(set(records + alerts)) == len(rules) and len(alerts) == 13
    assert {rule["labels"]["severity"] for rule in rules if "alert" in rule} == {"info", "warning", "critical"}
