"""Every alert fires, stays silent before its time and resolves; also cases that a simpler rule would miss."""

import pytest
import yaml
from heterotp_dashboards.alerts import Thresholds
from heterotp_dashboards.queries import IMBALANCE
from heterotp_dashboards.rule_files import prometheus_rules
from support.alert_cases import CASES, GENERATION, LAST, LEARNING, OPERATORS, POLICY, PRESENCE, STALLS, STRAGGLERS
from support.promtool import run

RULES = prometheus_rules(Thresholds())


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_should_and_only_then(name, tmp_path):
    done = run(RULES, [CASES[name]], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_that_fires_and_one_that_is_silent():
    alerts = {r["alert"] for group in yaml.safe_load(RULES)["groups"] for r in group["rules"] if "alert" in r}
    fires = {case.alert for case in CASES.values() if any(case.expected.values())}
    silent = {case.alert for case in CASES.values() if not all(case.expected.values())}
    assert fires == silent == alerts


MUTANTS = {
    "pods of before a restart count": (
        "\n      and on (cluster, namespace, heterotpjob, rank, node) heterotp_iterations_total",
        "",
        STRAGGLERS,
    ),
    "running without the offset": (" offset 600s", "", STALLS),
    "also ranks that are no longer scraped": (
        "\n      and on (cluster, namespace, heterotpjob, rank) heterotp_pruned_ratio",
        "",
        POLICY,
    ),
    "threshold of chi": ("ratio > 1.5", "ratio > 2.5", STRAGGLERS),
    "without the imbalance": (f"\n        and on (cluster, namespace, heterotpjob) {IMBALANCE} > 1.2", "", STRAGGLERS),
    "waiting counts as work": ('phase=~"matmul|unit|fixed"', 'phase=~"matmul|unit|fixed|wait"', STRAGGLERS),
    "a longer waiting time": ("for: 10m", "for: 20m", STRAGGLERS),
    "a job that never iterated is as old as time": (f"({LAST} > 0)", f"({LAST})", STALLS),
    "also jobs that do not run": ('"Running"} == 1', '"Suspended"} == 1', STALLS),
    "equal instead of unlike": (f"({GENERATION}) != min", f"({GENERATION}) == min", POLICY),
    "number of decisions": ("> 30", "> 300", POLICY),
    "share pruned": ("> 0.5", "> 0.7", POLICY),
    "infinity is finite": (" or abs(heterotp_loss) == +Inf", "", LEARNING),
    "NaN is finite": ("heterotp_loss != heterotp_loss or ", "", LEARNING),
    "the best of any run": (
        '{split="eval"}[6h]) - heterotp_accuracy_ratio{split="eval"})',
        '{split="eval"}[6h])) - max by (cluster, namespace, heterotpjob) (heterotp_accuracy_ratio{split="eval"})',
        LEARNING,
    ),
    "starting counts": ("Pending|Starting|Restarting", "Pending", PRESENCE),
    "only with rank 0": (
        "\n        or count by (cluster, namespace, heterotpjob) (count by (cluster, namespace, heterotpjob, rank) "
        "(heterotp_iterations_total)) unless on (cluster, namespace, heterotpjob) "
        "max by (cluster, namespace, heterotpjob) (heterotp_world_ranks)",
        "",
        PRESENCE,
    ),
    "all replicas must be up": ('absent(up{job="heterotp-operator"} == 1)', "up == 0", OPERATORS),
    "beyond the last bucket": (">= 10", "> 10", OPERATORS),
    "share of errors": ("> 0.05", "> 0.5", OPERATORS),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_changed_rule_is_detected(name, tmp_path):
    before, after, cases = MUTANTS[name]
    assert before in RULES, f"the mutant {name} changes nothing"
    done = run(RULES.replace(before, after), list(cases.values()), tmp_path)
    assert done.returncode == 1 and "FAILED" in done.stdout + done.stderr
