"""The history of a page: bounded, by the same rules as report.html, and right after resumes."""

import random

import pytest
from heterotp_api.report import RankReport, RunReport
from heterotp_cli.follow import History
from heterotp_cli.page.content import content
from heterotp_cli.ui.columns import MOST_SAMPLES, RECENT, Columns, RankTimes
from support.played_run import history_entry


def filled(entries, ranks=2, most=None):
    columns = Columns(ranks, most)
    for entry in entries:
        columns.add(entry)
    return columns


def slowed(iteration, chi, **changes):
    entry = history_entry(iteration, 2, **changes)
    entry["ranks"][1]["chi"] = chi
    return entry


def test_a_short_history_is_shown_as_in_the_report():
    draw = random.Random(1)
    choices = [None, None, 1.0, 4.004]
    entries = [
        slowed(i, draw.choice(choices), iterationSeconds=draw.random(), measured=draw.random() < 0.8)
        for i in range(1, 101)
    ]
    for entry in entries[::3]:
        entry["ranks"][0]["blamed"] = draw.random() / 10
    ranks = tuple(RankReport(rank=rank, group="a") for rank in range(2))
    report = RunReport(job="demo", state="running", attempt=1, ranks=ranks).document()
    static = content(History(tuple(range(1, 101)), tuple(entries)), report)
    live = filled(entries).document(0)
    assert live == {key: static[key] for key in live}


def test_columns_are_merged_in_pairs_where_they_would_be_too_many():
    columns = filled([slowed(i, float(i), iterationSeconds=float(i)) for i in range(1, 10)], most=4)
    assert (len(columns), columns.epoch) == (3, 2)  # of four iterations each, the last of one
    shown = columns.document(0)
    assert shown["iteration"] == [4, 8, 9]
    assert shown["seconds"] == [3.0, 7.0, 9.0]
    assert shown["chi"] == [[None] * 3, [4.0, 8.0, 9.0]]


def test_lost_time_of_merged_columns_is_weighted_by_time():
    entries = [history_entry(i, 1, iterationSeconds=float(i)) for i in range(1, 5)]
    for entry, blamed in zip(entries, (0.5, 1.0, None, 0.0), strict=True):
        entry["ranks"][0]["blamed"] = blamed
    assert filled(entries, ranks=1, most=2).document(0)["lost"] == [[0.5, 0]]


def test_a_long_history_takes_bounded_memory():
    columns = filled((history_entry(i, 1) for i in range(1, 20_001)), ranks=1, most=12)
    assert len(columns) <= 12
    assert all(len(column.seconds) <= MOST_SAMPLES for column in columns.columns)


def test_a_repeated_iteration_replaces_it_and_all_later_ones():
    columns = filled([slowed(i, 2.0, loss=1.0) for i in range(1, 6)])
    before = columns.epoch
    columns.add(slowed(3, None, loss=9.0))
    assert columns.document(0)["iteration"] == [1, 2, 3]
    assert columns.document(0)["loss"] == [1.0, 1.0, 9.0]
    assert columns.document(0)["chi"][1] == [2.0, 2.0, 2.0]  # the last one known
    assert columns.epoch > before


def test_iterations_go_on_from_the_middle_of_a_merged_column():
    columns = filled([slowed(i, 1.0) for i in range(1, 9)], most=4)
    columns.add(slowed(4, 1.0))
    columns.add(slowed(5, 1.0))
    shown = columns.document(0)["iteration"]
    assert shown[-1] == 5 and shown == sorted(set(shown))


@pytest.mark.parametrize("ranks", [None, "two", [1, None], [{"chi": "slow", "matmul": float("nan")}]])
def test_damaged_rows_are_shown_as_not_known(ranks):
    columns, times = Columns(1), RankTimes(1)
    entry = history_entry(1, 1, ranks=ranks, loss=float("inf"), iterationSeconds=True)
    columns.add(entry)
    times.add(entry)
    assert columns.document(0) == {
        "iteration": [1],
        "seconds": [None],
        "loss": [None],
        "accuracy": [None],
        "chi": [[None]],
        "lost": [[None]],
    }
    assert times.of(0)["matmul"] is None


def test_times_of_a_rank_follow_the_newest_iterations():
    times = RankTimes(1)
    for seconds in [1.0] * 50 + [2.0] * 10 * RECENT:
        times.add(history_entry(1, 1, ranks=[{"matmul": seconds}]))
    times.add(history_entry(1, 1, ranks=[{"matmul": 1000.0}], measured=False))
    assert times.of(0)["matmul"] == pytest.approx(2.0, rel=0.01)
    assert times.of(7)["wait"] is None
