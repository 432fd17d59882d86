"""A status document as text: rows, headline, plain lines, bars."""

import io

import pytest
from heterotp_api.load import parse_object
from heterotp_api.ranks import rank_table
from heterotp_api.trainer_status import TrainerRank, TrainerStatus
from heterotp_cli import rows
from heterotp_cli.live import PlainView, bar, render
from manifest_table import manifest
from rich.console import Console

EMULATED = {"type": "emulated", "teraflops": 0.05}


@pytest.fixture
def places():
    groups = [{"name": "fast", "processesPerPod": 3}, {"name": "slow", "device": EMULATED}]
    return rank_table(parse_object(manifest({"patch": {"spec": {"workerGroups": groups}}})).spec)


def rank(number, compute=0.06, wait=0.02):
    return TrainerRank(
        rank=number,
        tp_rank=number,
        device="cpu",
        share=0.25,
        compute_seconds=compute,
        matmul_seconds=0.05,
        wait_seconds=wait,
        relative_speed=0.5,
    )


def status(**changes):
    base = TrainerStatus(
        job="demo",
        attempt=1,
        state="running",
        started_at=0,
        epoch=3,
        iteration=120,
        total_iterations=330,
        iteration_seconds=0.0801,
        samples_per_second=799.2,
        loss=0.51234,
        accuracy=0.912,
        eta_seconds=61.2,
        limit_iteration_seconds=0.07,
        emulated=True,
        ranks=tuple(rank(n) for n in range(4)),
    )
    return base.model_copy(update=changes)


def test_a_row_tells_share_times_and_speed(places):
    row = rows.row(rank(3), places[3])
    assert (row.group, row.device) == ("slow", "emulated 0.05 TFLOPS")
    assert (row.share, row.matmul, row.wait, row.speed) == ("25.0 %", "50 ms", "20 ms", "0.50")
    assert (row.busy, row.waiting) == (pytest.approx(0.75), pytest.approx(0.25))


def test_a_rank_that_has_measured_nothing_shows_dashes(places):
    row = rows.row(TrainerRank(rank=0, tp_rank=0, device="cpu"), places[0])
    assert (row.share, row.matmul, row.wait, row.speed, row.busy) == ("-", "-", "-", "-", 0.0)


def test_where_room_is_short_the_slowest_ranks_stay(places):
    ranks = (rank(0, 0.1), rank(1, 0.3), rank(2, 0.2), rank(3, 0.4))
    assert [r.rank for r in rows.rows(status(ranks=ranks), places, 2)] == [1, 3]
    assert [r.rank for r in rows.rows(status(ranks=ranks), places, 4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.0008, "0.8 ms"), (0.085, "85 ms"), (2.414, "2.41 s")], ids=str
)
def test_seconds(value, text):
    assert rows.seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (61.2, "1:01"), (3725, "1:02:05")], ids=str)
def test_clock(value, text):
    assert rows.clock(value) == text


def test_plain_line_holds_what_matters():
    assert rows.plain_line(status()) == (
        "demo · attempt 1 · running · emulated · iteration 120/330 (epoch 3) · 80 ms/iteration (limit 70 ms) · "
        "799 samples/s · loss 0.5123 · test accuracy 91.2 % · 1:01 left"
    )


def test_resume_and_a_refused_control_document_are_said():
    news = {"resumed_from": 88, "control_error": "generation: absent", "message": "the disk is full"}
    assert rows.headline(status(**news, emulated=False)) == (
        "demo · attempt 1 · running · resumed from iteration 88 · the disk is full"
        " · control document refused: generation: absent"
    )


def test_plain_lines_come_on_news_and_every_few_seconds():
    assert rows.plain_due(status(), rows.Printed(), 0.0)
    printed = rows.Printed("running", 10.0)
    assert not rows.plain_due(status(), printed, 10.0 + rows.PLAIN_EVERY_SECONDS - 0.1)
    assert rows.plain_due(status(), printed, 10.0 + rows.PLAIN_EVERY_SECONDS)
    assert rows.plain_due(status(state="stopping"), printed, 10.1)


def test_plain_view_does_not_repeat_itself():
    out = io.StringIO()
    view = PlainView(Console(file=out, width=80))
    view.show(status())
    view.show(status(iteration=121))
    assert out.getvalue().count("\n") == 1


def test_bar_is_busy_then_wait(places):
    assert bar(rows.row(rank(0), places[0])).plain == "█" * 20
    assert bar(rows.row(rank(0, 0.0, 0.0), places[0])).plain == ""


def test_the_table_shows_every_rank_and_its_device(places):
    out = io.StringIO()
    Console(file=out, width=120).print(render(status(), places, 10))
    text = out.getvalue()
    assert text.count("fast") == 3
    assert "emulated 0.05 TFLOPS" in text
    assert "iteration 120/330 (epoch 3)" in text
    assert "1:01 left" in text


def test_hidden_ranks_are_counted(places):
    out = io.StringIO()
    Console(file=out, width=120).print(render(status(), places, 2))
    assert "the slowest 2 of 4 ranks" in out.getvalue()
