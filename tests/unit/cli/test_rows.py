"""A status document as text: rows, headline, plain lines, bars."""

import io

import pytest
from heterotp_api.load import parse_object
from heterotp_api.ranks import rank_table
from heterotp_api.trainer_status import TrainerRank, TrainerStatus
from heterotp_cli import rows
from heterotp_cli.live import PlainView, bar, render
from rich.console import Console
from support.manifest_table import manifest

EMULATED = {"type": "emulated", "teraflops": 0.05}


@pytest.fixture
def places():
    groups = [{"name": "fast", "processesPerPod": 3}, {"name": "slow", "device": EMULATED}]
    return rank_table(parse_object(manifest({"patch": {"spec": {"workerGroups": groups}}})).spec)


def rank(number, compute=0.06, wait=0.02, **more):
    return TrainerRank(
        rank=number,
        tp_rank=number,
        device="cpu",
        share=0.25,
        compute_seconds=compute,
        matmul_seconds=0.05,
        wait_seconds=wait,
        relative_speed=0.5,
        **more,
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


def test_a_row_shows_share_times_and_speed(places):
    row = rows.row(rank(3), places[3])
    assert (row.group, row.device) == ("slow", "emulated 0.05 TFLOPS")
    assert (row.share, row.matmul, row.wait, row.speed) == ("25.0 %", "50 ms", "20 ms", "0.50")
    assert (row.busy, row.waiting) == (pytest.approx(0.75), pytest.approx(0.25))


def test_a_rank_that_has_measured_nothing_shows_dashes(places):
    row = rows.row(TrainerRank(rank=0, tp_rank=0, device="cpu"), places[0])
    assert (row.share, row.matmul, row.wait, row.speed, row.busy) == ("-", "-", "-", "-", 0.0)


@pytest.mark.parametrize(
    ("more", "cells"),
    [
        ({}, ("-", "-", "-", "-")),
        ({"pruned_ratio": 0.6, "injected_slowdown": 4.0}, ("60.0 %", "-", "-", "4.0x")),
        ({"slowdown": 3.93, "straggler": True}, ("-", "-", "3.9x", "-")),
        ({"slowdown": 1.04}, ("-", "-", "-", "-")),
        ({"migrated_ratio": 0.25}, ("-", "25.0 %", "-", "-")),
        ({"columns_in": 42}, ("-", "+42", "-", "-")),
        ({"migrated_ratio": 0.25, "columns_in": 42}, ("-", "25.0 % +42", "-", "-")),
    ],
    ids=str,
)
def test_balancing_of_a_rank(places, more, cells):
    row = rows.row(rank(0, **more), places[0])
    assert (row.pruned, row.migrated, row.chi, row.injected) == cells


def test_in_a_small_terminal_the_slowest_ranks_stay(places):
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


def test_plain_line_has_progress_times_loss_and_accuracy():
    assert rows.plain_line(status(), 1767225600.0) == (
        "2026-01-01T00:00:00Z · demo · attempt 1 · running · emulated · "
        "iteration 120/330 (epoch 3) · 80 ms/iteration (limit 70 ms) · "
        "799 samples/s · loss 0.5123 · test accuracy 91.2 % · 1:01 left"
    )


def test_a_model_without_accuracy_shows_its_test_loss():
    assert rows.numbers(status(accuracy=None, test_loss=2.25)).endswith(" · loss 0.5123 · test loss 2.2500")
    assert rows.numbers(status(accuracy=None)).endswith(" · loss 0.5123")


def test_a_language_model_shows_its_perplexity():
    shown = rows.numbers(status(accuracy=None, test_loss=2.25, perplexity=9.4877))
    assert shown.endswith(" · test loss 2.2500 · perplexity 9.49")


def test_resume_and_a_refused_control_document_are_shown():
    news = {"resumed_from": 88, "control_error": "generation: absent", "message": "the disk is full"}
    assert rows.headline(status(**news, emulated=False)) == (
        "demo · attempt 1 · running · resumed from iteration 88 · the disk is full"
        " · control document refused: generation: absent"
    )


def test_plain_lines_are_printed_on_changes_and_every_few_seconds():
    assert rows.plain_due(status(), rows.Printed(), 0.0)
    printed = rows.Printed("running", 10.0)
    assert not rows.plain_due(status(), printed, 10.0 + rows.PLAIN_EVERY_SECONDS - 0.1)
    assert rows.plain_due(status(), printed, 10.0 + rows.PLAIN_EVERY_SECONDS)
    assert rows.plain_due(status(state="stopping"), printed, 10.1)


@pytest.mark.parametrize("state", ["succeeded", "failed", "stopping"])
def test_the_end_of_a_run_is_printed_once(state):
    ended = status(state=state, iteration=330)
    assert rows.plain_due(ended, rows.Printed("running", 10.0), 10.1)
    assert not rows.plain_due(ended, rows.Printed(state, 10.0), 60.0)


def test_after_the_last_iteration_a_line_waits_for_the_end():
    last, printed = status(iteration=330), rows.Printed("running", 10.0)
    assert not rows.plain_due(last, printed, 10.0 + rows.PLAIN_EVERY_SECONDS)
    assert rows.plain_due(last, printed, 10.0 + 2 * rows.PLAIN_EVERY_SECONDS)  # a long evaluation or checkpoint
    assert not rows.plain_due(last, rows.Printed("starting", 10.0), 10.1)
    assert rows.plain_due(status(iteration=330, total_iterations=None), printed, 10.0 + rows.PLAIN_EVERY_SECONDS)


REASON = "rank 3 is 4.0x slower: ZERO prunes 60 % of its columns"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"decision_id": 2}, ""),
        ({"decision_id": 2, "reason": REASON}, f"decision 2: {REASON}"),
        (
            {"decision_id": 2, "reason": REASON, "predicted_iteration_seconds": 0.075},
            f"decision 2: {REASON} (predicted 75 ms/iteration, measured now 80 ms)",
        ),
        (
            {"decision_id": 2, "reason": REASON, "decision_iteration": 41, "decision_at": 1767225600.5},
            f"decision 2 at iteration 41, 2026-01-01T00:00:00Z: {REASON}",
        ),
    ],
    ids=["none", "no promise", "promise", "its moment"],
)
def test_decision(changes, text):
    assert rows.decision(status(**changes)) == text


def test_plain_view_prints_every_decision_once():
    out = io.StringIO()
    view = PlainView(Console(file=out, width=80), lambda: 1767225600.0)
    for decision_id, reason in ((0, ""), (1, "first"), (1, "first"), (2, "second"), (2, "second")):
        view.show(status(strategy="ZERO", decision_id=decision_id, reason=reason))
    lines = out.getvalue().splitlines()
    head = "2026-01-01T00:00:00Z · demo · strategy ZERO · decision"
    assert lines[1:] == [f"{head} 1: first", f"{head} 2: second"]


def test_plain_view_does_not_repeat_itself():
    out = io.StringIO()
    view = PlainView(Console(file=out, width=80))
    view.show(status())
    view.show(status(iteration=121))
    assert out.getvalue().count("\n") == 1


def test_bar_is_busy_then_wait(places):
    assert bar(rows.row(rank(0), places[0])).plain == "█" * 20
    assert bar(rows.row(rank(0, 0.0, 0.0), places[0])).plain == ""


def drawn(places, room=10, width=140, **changes):
    out = io.StringIO()
    Console(file=out, width=width).print(render(status(**changes), places, room))
    return out.getvalue()


def test_the_table_shows_every_rank_and_its_device(places):
    text = drawn(places)
    assert text.count("fast") == 3
    assert "emulated 0.05 TFLOPS" in text
    assert "iteration 120/330 (epoch 3)" in text
    assert "1:01 left" in text


def test_hidden_ranks_are_counted(places):
    assert "the slowest 2 of 4 ranks" in drawn(places, 2)


def test_a_plain_run_has_no_columns_of_balancing(places):
    text = drawn(places)
    assert not any(word in text for word in (*rows.BALANCING_COLUMNS, "decision"))


def test_the_table_shows_the_columns_and_the_decision_of_balancing(places):
    helper, straggler = rank(0, columns_in=42), rank(3, migrated_ratio=0.25, injected_slowdown=4.0)
    text = drawn(places, ranks=(helper, rank(1), rank(2), straggler), decision_id=1, reason=REASON)
    assert "pruned" not in text and "chi" not in text
    assert all(word in text for word in ("migrated", "injected", "+42", "25.0 %", "4.0x", f"decision 1: {REASON}"))


def test_a_narrow_terminal_cuts_device_and_bar_but_no_number(places):
    straggler = rank(3, pruned_ratio=0.3, migrated_ratio=0.25, injected_slowdown=4.0)
    text = drawn(places, width=80, ranks=(straggler,))
    assert all(word in text for word in ("25.0 %", "50 ms", "20 ms", "0.50", "30.0 %", "4.0x", "rel. speed"))
    assert max(map(len, text.splitlines())) <= 80


def test_columns_stay_while_the_rank_that_needs_them_is_hidden(places):
    ranks = (rank(0, 0.1, pruned_ratio=0.5), rank(1, 0.3), rank(2, 0.2), rank(3, 0.4))
    assert "pruned" in drawn(places, 2, ranks=ranks)


WHERE = "rank 1 is still computing (data, since 11:02:03 UTC), the others wait for the sum of b"
STALL = {"stall": WHERE, "stalled_seconds": 12.0, "stalled_by": (1,)}


def test_a_stall_takes_the_place_of_the_time_left():
    line = rows.plain_line(status(**STALL), 0.0)
    assert line.endswith(f" · no iteration for 12 s; {WHERE}")
    assert " left" not in line


def test_the_table_shows_a_stall_while_it_lasts(places):
    lines = drawn(places, 10, width=200, **STALL).splitlines()
    assert f"no iteration for 12 s; {WHERE}" in [line.strip() for line in lines]
    assert "no iteration" not in drawn(places, 10, width=200)
