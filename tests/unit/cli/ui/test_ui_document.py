"""What a browser gets: at first all, then what it lacks; texts of a stranger are bounded."""

import json
import random
from dataclasses import replace

import pytest
from heterotp_cli.run_lock import lock
from heterotp_cli.ui.cluster_feed import MOST_DECISIONS, ClusterFeed
from heterotp_cli.ui.columns import Columns, RankTimes
from heterotp_cli.ui.document import MOST_TEXT, Known, Picture, document
from heterotp_cli.ui.local_feed import LocalFeed
from heterotp_cli.verbs.local import open_run
from heterotp_cli.verbs.view import BlameView, JobView, RankView
from heterotp_cli.workdir import write_json
from support.played_run import Run, append_history, history_entry

LINES = ("iteration", "seconds", "loss", "accuracy")


class Browser:
    """Does what live.js does with the answers."""

    def __init__(self):
        self.run = None

    @property
    def known(self):
        if self.run is None:
            return Known()
        live = self.run["live"]
        return Known(live["key"], len(self.run["iteration"]), live["decided"], live["mark"])

    def take(self, news):
        if news is None:
            return
        first = news["live"]["first"]
        if first:
            for name in LINES:
                news[name] = self.run[name][:first] + news[name]
            for name in ("chi", "lost"):
                news[name] = [old[:first] + new for old, new in zip(self.run[name], news[name], strict=True)]
        if news["decisions"] is None:
            news["decisions"] = self.run["decisions"]
        self.run = json.loads(json.dumps(news, allow_nan=False))


def test_parts_make_the_whole_through_merges_and_resumes():
    draw, columns, times, browser = random.Random(3), Columns(3, most=8), RankTimes(3), Browser()
    iteration, decisions = 0, []
    for _ in range(300):
        iteration = max(1, iteration - draw.randrange(5)) if draw.random() < 0.05 else iteration + 1
        entry = history_entry(iteration, 3, loss=draw.random())
        entry["ranks"][draw.randrange(3)] |= {"chi": draw.random(), "blamed": draw.random() / 10}
        columns.add(entry)
        times.add(entry)
        if draw.random() < 0.1:
            decisions.append({"iteration": iteration, "reason": str(draw.random())})
        if draw.random() < 0.5:
            picture = Picture(JobView("demo"), columns, times, decisions=list(decisions), newest=entry)
            browser.take(document(picture, browser.known))
            whole = document(picture, Known())
            assert {**browser.run, "live": None} == {**whole, "live": None}
    assert columns.epoch > 5


def test_nothing_is_sent_twice():
    columns = Columns(2)
    columns.add(history_entry(1, 2))
    picture, browser = Picture(JobView("demo"), columns, RankTimes(2)), Browser()
    for _ in range(2):
        browser.take(document(picture, browser.known))
    assert document(picture, browser.known) is None
    columns.add(history_entry(2, 2))
    news = document(picture, browser.known)
    assert news["iteration"] == [1, 2][news["live"]["first"] :]
    assert document(replace(picture, view=JobView("demo", state="failed")), browser.known) is not None


def test_texts_of_a_stranger_are_cut_and_have_one_line():
    view = JobView("demo\n\x1b[2J", state="Running", stall="x" * 10_000)
    shown = document(Picture(view, Columns(0), RankTimes(0), explanation="y" * 100_000), Known())
    assert shown["job"] == "demo\\n\\x1b[2J"
    assert len(shown["live"]["stall"]) == MOST_TEXT
    assert len(json.dumps(shown)) < 20_000


def test_a_key_that_a_browser_made_up_gets_everything():
    columns = Columns(1)
    columns.add(history_entry(1, 1))
    picture = Picture(JobView("demo"), columns, RankTimes(1))
    for known in (Known("made up", 10**9), Known(document(picture, Known())["live"]["key"], 10**9)):
        assert document(picture, known)["live"]["first"] == 0


# -- of a run directory ---------------------------------------------------------------------------------------


def shown(feed):
    return document(feed.look(), Known())


def test_a_run_is_shown_while_it_grows(tmp_path):
    run = Run(tmp_path)
    feed = LocalFeed(open_run(str(tmp_path)))
    assert (shown(feed)["iteration"], len(shown(feed)["ranks"])) == ([], 4)
    append_history(tmp_path, history_entry(1), history_entry(2))
    run.report(iteration=2, state="running")
    found = shown(feed)
    assert found["iteration"] == [1, 2]
    assert [rank["group"] for rank in found["ranks"]] == ["fast", "fast", "fast", "slow"]
    assert found["ranks"][3]["matmul"] == pytest.approx(0.1)
    write_json(tmp_path / "journal.json", {"decisions": [decision("rank 3 is slow")]})
    assert [made["reason"] for made in shown(feed)["decisions"]] == ["rank 3 is slow"]


def decision(reason):
    made = {"attempt": 1, "iteration": 2, "time": "2026-01-01T00:00:00Z", "decisionId": 1, "strategy": "AUTO"}
    return {**made, "cause": "x", "reason": reason}


def test_a_run_that_has_ended_shows_its_report_and_no_buttons(tmp_path):
    Run(tmp_path)
    write_json(tmp_path / "report.json", {"job": "demo", "state": "succeeded", "attempt": 1, "iterations": 99})
    found = shown(LocalFeed(open_run(str(tmp_path))))
    assert (found["state"], found["iterations"]) == ("succeeded", 99)
    assert (found["live"]["running"], found["live"]["controls"]) == (False, False)
    assert found["live"]["explanation"].startswith("demo has succeeded")


def test_a_run_has_ended_when_its_report_says_so(tmp_path):
    run = Run(tmp_path)
    feed = LocalFeed(open_run(str(tmp_path)))
    with lock(tmp_path):
        assert shown(feed)["live"]["running"]
        write_json(run.place / "report.json", {"job": "demo", "state": "stopped"})
        found = shown(feed)
    assert (found["state"], found["live"]["running"]) == ("stopped", False)


def test_a_run_that_began_anew_is_shown_from_its_beginning(tmp_path):
    Run(tmp_path)
    feed = LocalFeed(open_run(str(tmp_path)))
    append_history(tmp_path, *(history_entry(i) for i in range(1, 9)))
    before = shown(feed)
    (tmp_path / "history.jsonl").unlink()
    append_history(tmp_path, history_entry(1))
    after = shown(feed)
    assert (before["iteration"][-1], after["iteration"]) == (8, [1])
    assert before["live"]["key"] != after["live"]["key"]


def test_a_run_without_groups_has_the_ranks_of_its_history(tmp_path):
    Run(tmp_path, groups=[])
    append_history(tmp_path, history_entry(1, 3), history_entry(2, 3))
    found = shown(LocalFeed(open_run(str(tmp_path))))
    assert (found["iteration"], len(found["ranks"]), len(found["chi"])) == ([1, 2], 3, 3)


# -- of a cluster ---------------------------------------------------------------------------------------------


class Job:
    """Plays the target of a job, whose view a test sets."""

    name = "demo"

    def __init__(self, **view):
        self.view = JobView("demo", namespace="default", state="Running", attempt=1, rank_count=3, **view)

    def look(self):
        return self.view

    def command(self, verb):
        return f"kubectl heterotp {verb} demo"

    def now(self, **changes):
        self.view = replace(self.view, **changes)


def test_a_job_is_shown_from_its_statuses():
    slow = RankView(2, group="slow", slowdown=4.0, compute_seconds=0.3, matmul_seconds=0.2, wait_seconds=0.1)
    job = Job(iteration=5, iteration_seconds=0.4, loss=1.5, reason="first", ranks=(slow,))
    feed = ClusterFeed(job)
    shown(feed)
    found = shown(feed)  # a second look at the same iteration adds nothing
    assert (found["iteration"], found["seconds"], found["loss"]) == ([5], [0.4], [1.5])
    assert found["chi"] == [[None], [None], [4.0]]
    assert found["ranks"][2]["other"] == pytest.approx(0.1)
    assert (found["ranks"][2]["group"], found["ranks"][0]["slowdown"]) == ("slow", None)
    job.now(iteration=9, reason="second", blame=(BlameView(2, "ffn", 0.1), BlameView(2, "data", 0.1)))
    found = shown(feed)
    assert [line[-1] for line in found["lost"]] == [0, 0, 0.5]
    assert (found["iteration"], [made["reason"] for made in found["decisions"]]) == ([5, 9], ["first", "second"])
    job.now(attempt=2, iteration=7)
    assert shown(feed)["iteration"] == [5, 7]


def test_decisions_of_a_job_are_bounded():
    job = Job(iteration=1)
    feed = ClusterFeed(job)
    for number in range(MOST_DECISIONS + 5):
        job.now(reason=str(number))
        feed.look()
    found = shown(feed)
    assert (len(found["decisions"]), found["leftOut"]) == (MOST_DECISIONS, 5)
