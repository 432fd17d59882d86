"""report.json alone answers: who was slow, when, what was done about it, and what did it cost."""

import statistics
from datetime import datetime
from itertools import pairwise

import pytest
from heterotp_api.report import RunReport
from support.balancing_gang import CHI4, SLOW_ONLY, body, write_control

STARTED, STOPPED = 25, 70
INJECTED = CHI4 | {"start": {"iteration": STARTED}, "stop": {"iteration": STOPPED}}


def moment(text):
    assert text.endswith("Z")
    return datetime.fromisoformat(text)


def slow_spans(report):
    """Return who was slow and when: (rank, from iteration, to iteration) of each span of decisions that name a rank."""
    spans, since = [], {}
    for decision in report["decisions"]:
        named = {slow["rank"] for slow in decision["stragglers"]}
        spans += [(rank, since.pop(rank), decision["iteration"]) for rank in sorted(set(since) - named)]
        since |= {rank: decision["iteration"] for rank in named - set(since)}
    return spans + [(rank, start, None) for rank, start in since.items()]


def trained(launch, strategy):
    write_control(launch.workdir, 1, strategy, [INJECTED], **SLOW_ONLY)
    run = launch(body(iterations=100))
    assert run.wait() == 0, run.text()
    return run, run.read("report.json")


def checked(report, run):
    """Check what the report of each strategy shows: the injection, points in time, and the lists in full."""
    RunReport.model_validate_json((run.workdir / "report.json").read_text())
    (injected,) = report["injections"]
    assert [injected[key] for key in ("rank", "slowdown", "mode", "problem")] == [2, 4, "sleep", ""]
    assert (injected["fromIteration"], injected["toIteration"]) == (STARTED, STOPPED)
    assert report["leftOut"] == dict.fromkeys(("decisions", "moves", "injections", "shares"), 0)
    assert report["skippedUpdates"] == 0
    points = [each["time"] for each in report["decisions"]]
    for earlier, later in pairwise([report["startedAt"], *points, report["endedAt"]]):
        assert moment(earlier) <= moment(later)
    assert moment(injected["fromTime"]) <= moment(injected["toTime"])
    assert [each["decisionId"] for each in report["decisions"]] == sorted(
        each["decisionId"] for each in report["decisions"]
    )
    assert report["reason"] == report["decisions"][-1]["reason"]


def test_the_report_of_a_pruned_straggler(launch):
    run, report = trained(launch, "ZERO")
    checked(report, run)
    # who was slow, and when
    slow = [decision for decision in report["decisions"] if decision["stragglers"]]
    assert {each["rank"] for decision in slow for each in decision["stragglers"]} == {2}
    assert 2.8 <= slow[0]["stragglers"][0]["slowdown"] < 6
    ((rank, since, until),) = slow_spans(report)
    assert rank == 2 and STARTED < since < STOPPED < until <= 100
    # what was done
    assert (slow[0]["strategy"], slow[0]["cause"]) == ("ZERO", "reduced")
    assert [(each["rank"], each["migratedRatio"]) for each in slow[0]["reductions"]] == [(2, 0)]
    assert 0.3 < slow[0]["reductions"][0]["prunedRatio"] < 0.9
    assert slow[0]["predictedIterationSeconds"] < 0.7 * slow[0]["untouchedIterationSeconds"]
    # what it cost, and what it saved
    assert 0.1 < slow[0]["deletedShare"] < 1 / 3
    under = (until - since) / 100
    assert report["deletedShare"] == pytest.approx(slow[0]["deletedShare"] * under, rel=0.3)
    assert report["savedSeconds"] > 0
    assert report["moves"] == []
    history = {line["iteration"]: line["ranks"][2] for line in run.history()}
    assert [history[i]["injected"] for i in (STARTED - 1, STARTED, STOPPED - 1, STOPPED)] == [1, 4, 4, 1]
    assert (history[since - 1]["pruned"], history[since]["pruned"]) == (0, slow[0]["reductions"][0]["prunedRatio"])
    assert history[since]["share"] == pytest.approx(1 / 3) and history[since]["migrated"] == 0
    before, after = range(STARTED - 9, STARTED), range(since + 1, since + 10)
    chi = [statistics.median(history[iteration]["chi"] for iteration in some) for some in (before, after)]
    assert chi[0] < 2 < chi[1]


def test_the_report_of_a_straggler_whose_units_move(launch):
    run, report = trained(launch, "AUTO")
    checked(report, run)
    away = next(decision for decision in report["decisions"] if decision["cause"] == "unitsMoved")
    assert [each["rank"] for each in away["stragglers"]] == [2]
    assert away["stragglers"][0]["slowdown"] > 2
    move = report["moves"][0]
    assert (move["iteration"], move["decisionId"]) == (away["iteration"], away["decisionId"])
    assert STARTED < move["iteration"] < STOPPED
    assert move["heads"] > 0 and move["hiddenUnits"] > 0
    assert move["movedBytes"] > 0 and move["seconds"] > 0 and move["expectedSeconds"] > 0
    of_rank_2 = [(each["iteration"], each["share"]) for each in report["shares"] if each["rank"] == 2]
    assert of_rank_2[0] == (1, pytest.approx(1 / 3))
    assert of_rank_2[1][0] == move["iteration"] and of_rank_2[1][1] < 0.25
    assert report["deletedShare"] == 0


def test_lines_of_the_log_carry_time_and_iteration(launch):
    run, report = trained(launch, "ZERO")
    text, (injected,) = run.text(), report["injections"]
    for decision in report["decisions"]:
        line = f"{decision['time']} iteration {decision['iteration']}: decision {decision['decisionId']}: "
        assert line + decision["reason"] in text
    assert f"{injected['fromTime']} iteration {STARTED}: injections slow rank 2 4x (sleep)" in text
    assert f"{injected['toTime']} iteration {STOPPED}: injections slow no rank" in text
    assert "Z iteration 100: checkpoint written in " in text
    assert "control document 1 in force from iteration " in text
