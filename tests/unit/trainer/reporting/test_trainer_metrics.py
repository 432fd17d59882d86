"""The exposition of a rank: names, labels, series."""

import math
from typing import get_args

import pytest
from heterotp_api.policy import BalancingSettings
from heterotp_trainer.boundary.control_channel import RefusalReason
from heterotp_trainer.devices.phase_clock import PHASES
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.reporting.metrics import JobMetrics, RankMetrics
from prometheus_client.parser import text_string_to_metric_families

SECONDS = {phase: 0.5 for phase in PHASES}


def samples(metrics):
    families = text_string_to_metric_families(metrics.text()[0].decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_every_phase_is_there_before_the_first_iteration():
    shown = samples(RankMetrics(3, "full"))
    for phase in PHASES:
        assert shown["heterotp_phase_seconds_total", (("phase", phase), ("rank", "3"))] == 0


def test_a_slow_iteration_has_an_exemplar_in_openmetrics():
    metrics = RankMetrics(0, "full")
    JobMetrics(metrics.registry, 2, 1, "gloo").stepped(0.7, 41)
    text, content_type = metrics.text("application/openmetrics-text; version=1.0.0,text/plain")
    assert content_type.startswith("application/openmetrics-text")
    assert '# {step="41"} 0.7' in text.decode()
    plain, content_type = metrics.text()
    assert content_type.startswith("text/plain")
    assert "step=" not in plain.decode()


def test_an_iteration_is_counted():
    metrics = RankMetrics(3, "full")
    metrics.iteration(SECONDS, work=0.25, now=1000.0)
    metrics.iteration(SECONDS, work=0.25, now=1001.0)
    shown = samples(metrics)
    rank = (("rank", "3"),)
    assert shown["heterotp_iterations_total", rank] == 2
    assert shown["heterotp_work_units_total", rank] == 0.5
    assert shown["heterotp_last_iteration_timestamp_seconds", rank] == 1001
    assert shown["heterotp_phase_seconds_total", (("phase", "wait"), ("rank", "3"))] == 1


@pytest.mark.parametrize(("level", "series"), [("basic", 6), ("full", 27)])
def test_the_series_budget_of_a_rank(level, series):
    assert len(samples(RankMetrics(0, level))) == series


def test_a_slowdown_is_shown_while_it_is_known():
    metrics, series = RankMetrics(3, "full"), ("heterotp_slowdown_ratio", (("rank", "3"),))
    assert series not in samples(metrics)
    metrics.slowdown(1.5)
    assert samples(metrics)[series] == 1.5
    metrics.slowdown(None)
    assert series not in samples(metrics)


def test_only_causes_that_hold_now_have_series():
    metrics = RankMetrics(3, "full")
    before = samples(metrics)

    def shown():
        return {
            dict(labels)["cause"]: value for (name, labels), value in samples(metrics).items() if "slow_cause" in name
        }

    metrics.causes({"cpuLimit": 0.61, "data": 0.2})
    assert shown() == {"cpuLimit": 0.61, "data": 0.2}
    metrics.causes({"cpuLimit": 0.5})
    assert shown() == {"cpuLimit": 0.5}
    metrics.causes({})
    assert samples(metrics) == before


def test_rank_0_adds_the_jobs():
    metrics = RankMetrics(0, "full")
    job = JobMetrics(metrics.registry, ranks=8, attempt=2, backend="gloo")
    job.loss.labels("train").set(1.5)
    job.control_errors.labels("newer").inc()
    shown = samples(metrics)
    assert shown["heterotp_world_ranks", ()] == 8
    assert shown["heterotp_live_ranks", ()] == 8
    assert math.isnan(shown["heterotp_unprotected_ranks", ()])
    job.gang(1, 1)
    assert (samples(metrics)["heterotp_live_ranks", ()], samples(metrics)["heterotp_unprotected_ranks", ()]) == (1, 1)
    assert shown["heterotp_attempt", ()] == 2
    assert shown["heterotp_loss", (("split", "train"),)] == 1.5
    assert shown["heterotp_control_errors_total", (("reason", "newer"),)] == 1
    reasons = {labels[0][1] for name, labels in shown if name == "heterotp_control_errors_total"}
    assert reasons == set(get_args(RefusalReason))
    assert shown["heterotp_control_errors_total", (("reason", "malformed"),)] == 0
    assert sum(value for (name, _), value in shown.items() if name == "heterotp_policy_strategy") == 1
    assert not any(name.endswith("_created") for name, _ in shown)


def test_a_result_that_is_not_known_any_more_has_no_series():
    metrics, result = RankMetrics(0, "full"), (("split", "eval"),)
    job = JobMetrics(metrics.registry, ranks=2, attempt=1, backend="gloo")
    names = ("heterotp_loss", "heterotp_accuracy_ratio", "heterotp_perplexity")
    seen = []
    for found in ((2.0, None, 7.4), (800.0, None, None), (1.0, 0.5, None)):
        job.evaluated(*found)
        seen.append(tuple(samples(metrics).get((name, result)) for name in names))
    assert seen == [(2.0, None, 7.4), (800.0, None, None), (1.0, 0.5, None)]


def test_a_plan_with_new_prices_only_is_no_new_decision():
    metrics = RankMetrics(0, "full")
    job = JobMetrics(metrics.registry, ranks=8, attempt=1, backend="gloo")
    zero = BalancingSettings(strategy="ZERO")
    updates, predicted = ("heterotp_policy_updates_total", (("strategy", "ZERO"),)), "heterotp_plan_predicted_seconds"
    seen = [(samples(metrics)[updates], samples(metrics)[predicted, ()])]
    for decision_id, seconds in ((0, None), (1, 2.0), (1, 3.0), (2, None)):
        job.decided(WorkPlan(decision_id, zero, predicted_seconds=seconds))
        seen.append((samples(metrics)[updates], samples(metrics)[predicted, ()]))
    nothing = pytest.approx(math.nan, nan_ok=True)
    assert seen == [(0, nothing), (0, nothing), (1, 2.0), (1, 3.0), (2, nothing)]
