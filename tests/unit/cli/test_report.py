"""History, the completed report, and the picture."""

import json
from pathlib import Path

import pytest
from heterotp_api.load import parse_object
from heterotp_api.ranks import rank_table
from heterotp_api.report import RankReport, RunReport, run_report
from heterotp_api.summary import TimeSummary, summary
from heterotp_api.trainer_status import TrainerRank, TrainerStatus
from heterotp_cli.follow import History, read_history, read_status
from heterotp_cli.picture import bins, draw, evaluations, rank_title, slowest, steady
from heterotp_cli.report import completed, measured_seconds, summary_lines
from support.manifest_table import TABLE, manifest

ROOT = Path(__file__).parents[3]
KEYS = list(RunReport(job="", state="failed", attempt=1).document())
RANK_KEYS = list(RankReport(rank=0, group="").model_dump(by_alias=True))
PLACES = rank_table(parse_object(manifest(TABLE["good"][0])).spec)


def entry(iteration, seconds=0.1, **more):
    phases = {"compute": 0.05, "matmul": 0.04, "unit": 0.005, "fixed": 0.005, "wait": 0.04, "data": 0.0, "control": 0.0}
    base = {"attempt": 2, "iteration": iteration, "epoch": 0, "time": 1.0, "iterationSeconds": seconds, "loss": 1.0}
    base |= {"accuracy": None, "measured": True}
    return {**base, "ranks": [phases] * 4, **more}


def history_file(tmp_path, *entries, end=""):
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(e) + "\n" for e in entries) + end)
    return read_history(tmp_path)


def test_iterations_repeated_after_a_resume_replace_the_old_ones(tmp_path):
    history = history_file(tmp_path, entry(1), entry(2), entry(3), entry(2, 0.2), end='{"iteration": 3, "ep')
    assert history.iterations == (1, 2, 3)
    assert [e["iterationSeconds"] for e in history.entries] == [0.1, 0.2, 0.1]


def test_no_history_is_empty(tmp_path):
    assert len(read_history(tmp_path)) == 0


def test_statistics_take_the_measured_iterations_of_the_attempt():
    entries = (entry(1, 9.0, measured=False), entry(2, 8.0, attempt=1), entry(3, 0.1), entry(4, 0.2))
    assert measured_seconds(History((1, 2, 3, 4), entries), 2) == [0.1, 0.2]


def test_summary_is_by_nearest_rank():
    assert summary([0.4, 0.1, 0.2, 0.3]) == TimeSummary(min=0.1, median=0.25, p95=0.4, max=0.4)
    assert summary(list(range(1, 21))).p95 == 19
    assert summary([]) == TimeSummary()


def test_a_run_that_died_gets_a_report_with_all_keys(tmp_path):
    history = history_file(tmp_path, entry(1), entry(2, loss=0.5))
    report = completed(None, "failed", "demo", 3, None, history, PLACES)
    assert list(report) == KEYS
    assert (report["state"], report["iterations"], report["trainLoss"], report["attempt"]) == ("failed", 2, 0.5, 3)
    assert [rank["group"] for rank in report["ranks"]] == ["fast"] * 3 + ["slow"]
    assert all(list(rank) == RANK_KEYS for rank in report["ranks"])
    assert (report["decisionId"], report["reason"], report["predictedIterationSeconds"]) == (0, "", None)


def test_the_last_status_fills_in_the_last_decision():
    slow = TrainerRank(rank=3, tp_rank=3, device="cpu", pruned_ratio=0.6, injected_slowdown=4.0, measured_slowdown=3.9)
    status = TrainerStatus(
        job="demo",
        attempt=1,
        state="running",
        started_at=0,
        strategy="ZERO",
        decision_id=2,
        reason="rank 3 is slow",
        predicted_iteration_seconds=0.075,
        ranks=(slow,),
    )
    report = completed(None, "failed", "demo", 1, status, History(), PLACES)
    assert (report["decisionId"], report["reason"], report["predictedIterationSeconds"]) == (2, "rank 3 is slow", 0.075)
    keys = ("prunedRatio", "migratedRatio", "injectedSlowdown", "measuredSlowdown")
    assert [report["ranks"][3][key] for key in keys] == [0.6, 0.0, 4.0, 3.9]
    assert [report["ranks"][0][key] for key in keys] == [None] * 4
    lines = summary_lines(report, 1.0)
    assert lines[-2] == "  iteration      median -, 95 % below -; at the end: predicted 75 ms"
    assert lines[-1] == "  balancing      ZERO, decision 2: rank 3 is slow"


def test_rank_0_and_the_command_line_write_the_same_keys():
    ranks = tuple(TrainerRank(rank=n, tp_rank=n, device="cpu") for n in range(4))
    status = TrainerStatus(job="demo", attempt=1, state="failed", started_at=0.0, ranks=ranks)
    own = completed(None, "failed", "demo", 1, status, History(), PLACES)
    written = run_report(status, ["fast"] * 3 + ["slow"], summary([])).document()  # as the trainer's RunStatus.report
    assert list(written) == list(own) == KEYS
    assert [list(rank) for rank in written["ranks"]] == [list(rank) for rank in own["ranks"]] == [RANK_KEYS] * 4
    assert list(written["iterationSeconds"]) == list(own["iterationSeconds"]) == ["min", "median", "p95", "max"]


@pytest.mark.parametrize("key", [*KEYS, *RANK_KEYS, *TimeSummary.model_fields])
def test_every_key_is_documented(key):
    page = (ROOT / "docs" / "report.md").read_text()
    assert f"`{key}`" in page or f"`{key}[]`" in page


def test_fields_of_rank_0_win_except_the_state():
    report = completed({"state": "succeeded", "iterations": 9}, "failed", "demo", 1, None, History(), PLACES)
    assert (report["state"], report["iterations"]) == ("failed", 9)


def test_summary_says_emulated():
    report = completed({"emulated": True, "testAccuracy": 0.95}, "succeeded", "demo", 1, None, History(), PLACES)
    lines = summary_lines(report, 12.3)
    assert lines[0] == "demo succeeded (attempt 1, emulated devices) in 12 s"
    assert any("95.0 %" in line for line in lines)
    assert not any("predicted" in line or "balancing" in line for line in lines)


def test_summary_says_that_the_limit_is_of_the_end_and_the_median_of_all():
    """An injection over the last iterations raises the limit above the median."""
    own = {"iterationSeconds": {"median": 0.086, "p95": 0.12}, "limitIterationSeconds": 0.093}
    lines = summary_lines(completed(own, "succeeded", "demo", 1, None, History(), PLACES), 1.0)
    assert "  iteration      median 86 ms, 95 % below 120 ms; at the end: limit 93 ms" in lines


MOVES = [{"seconds": 0.25}, {"seconds": 0.5}]


@pytest.mark.parametrize(
    ("own", "attempt", "line"),
    [
        ({"deletedShare": 0.021, "savedSeconds": 31.0}, 1, "pruned 2.1 % of all work; saved 31.00 s of 271.00 s"),
        ({"deletedShare": 0.021, "savedSeconds": 31.0}, 2, "pruned 2.1 % of all work; saved 31.00 s"),
        (
            {"savedSeconds": 12.0, "moves": MOVES},
            1,
            "no work pruned; units moved 2x in 750 ms; saved 12.00 s of 252.00 s",
        ),
        ({"deletedShare": 0.021, "savedSeconds": -3.0}, 1, "pruned 2.1 % of all work; lost 3.00 s"),
        ({}, 1, None),
        (None, 1, None),
    ],
    ids=["pruned", "resumed", "moved", "lost", "nothing-done", "no-report"],
)
def test_summary_says_what_balancing_cost_and_saved(own, attempt, line):
    lines = summary_lines(completed(own, "succeeded", "demo", attempt, None, History(), PLACES), 240.0)
    assert [each for each in lines if "cost" in each] == ([] if line is None else [f"  cost           {line}"])


def test_summary_shows_what_an_evaluation_measured():
    lines = summary_lines(completed({"testLoss": 2.0}, "succeeded", "demo", 1, None, History(), PLACES), 1.0)
    assert "  test loss      2.0000" in lines and not any("accuracy" in line for line in lines)


@pytest.mark.parametrize(
    ("gang", "line"),
    [
        ({"live": 3}, None),
        ({"live": 3, "comebacks": 2}, "  gang           lost ranks came back 2x"),
        (
            {"live": 2, "members": [0, 2], "lost": [{"rank": 1, "iteration": 41}]},
            "  gang           2/3 ranks live, rank 1 left at iteration 41, its work is with ranks 0 and 2",
        ),
    ],
)
def test_summary_and_report_name_the_ranks_that_were_lost(gang, line):
    known = TrainerStatus.model_validate(
        {"job": "demo", "attempt": 1, "state": "running", "startedAt": 0.0, "gang": {"started": 3, **gang}}
    )
    report = completed(None, "failed", "demo", 1, known, History(), PLACES)
    assert {name: report["gang"][name] for name in gang if name != "lost"} == {
        k: v for k, v in gang.items() if k != "lost"
    }
    assert [each for each in summary_lines(report, 1.0) if each.startswith("  gang")] == ([line] if line else [])


def test_summary_shows_perplexity_and_sample_of_a_language_model():
    report = {"testLoss": 2.0, "testPerplexity": 7.389, "sample": "The\nrank\x1b[2J"}
    lines = summary_lines(completed(report, "succeeded", "demo", 1, None, History(), PLACES), 1.0)
    assert "  perplexity     7.39" in lines and r"  sample         'The\nrank\x1b[2J'" in lines


def test_a_status_of_another_attempt_is_not_shown(tmp_path):
    document = {"schemaVersion": 1, "job": "demo", "attempt": 1, "state": "running", "startedAt": 1.0}
    document["ranks"] = [{"rank": 0, "tpRank": 0, "device": "cpu"}]
    (tmp_path / "status.json").write_text(json.dumps(document))
    assert read_status(tmp_path, 2) is None
    assert (read_status(tmp_path, 1).state, read_status(tmp_path, 1).ranks[0].device) == ("running", "cpu")
    (tmp_path / "status.json").write_text('{"job": 1}')
    assert read_status(tmp_path, 1) is None


@pytest.mark.parametrize("length", [2, 7, 50, 1000])
def test_bins_cover_every_iteration_once(length):
    edges = bins(length)
    assert [i for edge in edges for i in range(edge.start, edge.stop)] == list(range(length))
    assert len(edges) <= 160


def test_slowest_ranks_are_chosen_in_rank_order():
    ranks = [{"computeSeconds": s} for s in (0.1, 0.4, None, 0.3)]
    assert slowest(ranks, 2) == [1, 3]


def test_rank_title():
    assert rank_title({"rank": 3, "group": "slow", "share": 0.08, "relativeSpeed": 0.25}) == (
        "rank 3 (slow), 8 % of the work, speed 0.25"
    )


@pytest.mark.parametrize("iterations", [2, 40])
def test_the_picture_is_drawn(tmp_path, iterations):
    entries = [entry(i, accuracy=0.5 if i % 10 == 0 else None) for i in range(1, iterations + 1)]
    history = history_file(tmp_path, *entries)
    report = completed(None, "failed", "demo", 1, None, history, PLACES)
    draw(history, report, tmp_path / "report.png")
    data = (tmp_path / "report.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) > 10_000


def test_accuracy_is_a_point_where_it_changed(tmp_path):
    values = [None, 0.5, 0.5, 0.75, 0.75]
    history = history_file(tmp_path, *(entry(i, accuracy=value) for i, value in enumerate(values)))
    assert evaluations(history, {}) == [(1, 50.0), (3, 75.0)]
    done = {"iterations": 5, "testAccuracy": 0.8}
    assert evaluations(history, done) == [(1, 50.0), (3, 75.0), (5, 80.0)]


def test_unmeasured_iterations_are_left_out_of_the_times(tmp_path):
    history = history_file(
        tmp_path, entry(1, measured=False), entry(2, measured=True), entry(3), entry(4, measured=False)
    )
    assert steady(history).iterations == (2, 3)
    assert steady(history_file(tmp_path, entry(1, measured=False), entry(2))).iterations == (1, 2)
