"""`top` and `describe-ranks` as text."""

import io

import pytest
from heterotp_api.trainer_status import TrainerRank
from heterotp_cli.verbs.describe import describe
from heterotp_cli.verbs.follow import plain
from heterotp_cli.verbs.table import cut, overview, render
from heterotp_cli.verbs.view import Advice, JobView, of_job, of_run
from rich.console import Console
from support.cli_views import (
    INJECTED,
    NOW,
    REDUCED_WORK,
    SLOW,
    balanced_job,
    balancing,
    job_body,
    job_status,
    rank,
    run_status,
)

WIDE = """\
demo · Running · attempt 1 · 4 ranks · strategy SEMI (policy inline)
iteration 70/200 (epoch 1) · loss 1.168 · test accuracy 42.6 % · 0:45 left
349 ms/iteration · predicted 351 ms · limit 371 ms · untouched 871 ms · saved 12 min

rank  group  node     share  compute  matmul   wait   chi  pruned  migrated  injected
   2  fast   node-2  25.0 %   241 ms  223 ms  52 ms  4.0x  40.1 %    33.6 %      4.0x
   0  fast   node-0  25.0 %   241 ms  223 ms  52 ms  1.0x       -         -         -
   1  fast   node-1  25.0 %   241 ms  223 ms  52 ms  1.0x       -         -         -
   3  slow   node-3  25.0 %   241 ms  223 ms  52 ms  1.0x       -         -         -
decision: rank 2 is 4.0x slower: rank 2 40% pruned, 34% migrated; 0.871 s -> 0.351 s an iteration predicted"""

NARROW = """\
demo · Running · attempt 1 · 4 ranks · strategy SEMI (policy inline)
iteration 70/200 (epoch 1) · loss 1.168 · test accuracy 42.6 % · 0:45 left
349 ms/iteration · predicted 351 ms · limit 371 ms · untouched 871 ms
saved 12 min

rank group node    share compute matmul  wait  chi pruned migrated injected
   2 fast  node-2 25.0 %  241 ms 223 ms 52 ms 4.0x 40.1 %   33.6 %     4.0x
   0 fast  node-0 25.0 %  241 ms 223 ms 52 ms 1.0x      -        -        -
   1 fast  node-1 25.0 %  241 ms 223 ms 52 ms 1.0x      -        -        -
   3 slow  node-3 25.0 %  241 ms 223 ms 52 ms 1.0x      -        -        -
decision: rank 2 is 4.0x slower: rank 2 40% pruned, 34% migrated; 0.871 s ->
0.351 s an iteration predicted"""


OVERVIEW = """\
name state   ranks iteration slowest       strategy policy  saved
vit  Pending     4         - -             -        -           -
demo Running     4    349 ms rank 2 (4.0x) SEMI     inline 12 min"""


def shown(view, width=120, height=None, note=""):
    return plain(render(view, width, height, note), width)


def test_a_wide_terminal():
    assert shown(of_job(balanced_job())) == WIDE


def test_a_narrow_terminal_keeps_every_number():
    assert shown(of_job(balanced_job()), 80) == NARROW


def test_a_pipe_gets_full_names():
    reported = job_status(
        rank(0, node="ip-10-0-7-23.eu-central-1.compute.internal"), balancing=balancing(reason="long " * 99)
    )
    text = plain(render(of_job(job_body(reported)), 10**9))
    assert "ip-10-0-7-23.eu-central-1.compute.internal" in text
    assert text.splitlines()[-1] == f"decision: {'long ' * 99}".rstrip()


def test_in_a_narrow_table_names_are_cut():
    reported = job_status(*(rank(n, node=f"ip-10-0-{n}-23.eu-central-1.compute.internal") for n in range(4)))
    text = shown(of_job(job_body(reported)), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert all(f"…-10-0-{n}-23" in text or f"0-{n}-23 " in text for n in range(4))


@pytest.mark.parametrize(
    ("width", "text"),
    [(30, "ip-10-0-7-23.example.internal"), (20, "ip-10-0-7-23"), (12, "ip-10-0-7-23"), (8, "…-0-7-23")],
)
def test_a_long_host_name_is_cut_to_the_width(width, text):
    assert cut("ip-10-0-7-23.example.internal", width) == text


def test_ranks_that_find_no_room_are_counted():
    text = shown(of_job(balanced_job()), 80, height=1)  # fewer than four are never shown
    assert text.count("fast") + text.count("slow ") == 4
    many = job_body(job_status(ranks=[rank(n, slowdown=1 + n / 10) for n in range(40)]))
    many["spec"]["tensorParallelDegree"] = 128
    lines = shown(of_job(many), 80, height=24).splitlines()
    assert len(lines) <= 23
    assert lines[5].startswith("  39 ")
    assert lines[-1] == f"the slowest {len(lines) - 6} of 128 ranks"


def test_a_new_job_has_no_values():
    assert shown(of_job(job_body())) == "demo · new · 4 ranks"


def test_a_waiting_job_shows_what_it_waits_for():
    waiting = job_body({"phase": "Pending", "waitingFor": "Unschedulable"})
    assert shown(of_job(waiting)) == "demo · Pending · waits: Unschedulable · 4 ranks"


def test_problem_failure_and_advice_stand_below_the_table():
    view = JobView(
        "demo", state="Failed", problem="no", message="broken", advice=(Advice("ReplacementAdvised", "drain"),)
    )
    assert shown(view, note="old news").splitlines() == [
        "demo · Failed",
        "refused: no",
        "broken",
        "drain",
        "old news",
    ]


def test_a_run_shows_columns_that_are_computed_for_others_and_no_nodes():
    status = run_status(TrainerRank(rank=1, tp_rank=1, device="cpu", columns_in=82))
    lines = shown(of_run(status, [], "running")).splitlines()
    assert lines[4].split() == ["rank", "share", "compute", "matmul", "wait", "chi", "pruned", "migrated", "injected"]
    assert lines[6].split() == ["1", "-", "-", "-", "-", "-", "-", "+82", "-"]


def coloured(view):
    out = io.StringIO()
    Console(file=out, width=120, force_terminal=True, color_system="truecolor").print(render(view, 120))
    return out.getvalue()


def test_stragglers_are_red_and_a_rank_that_waits_much_is_amber():
    red, amber = "\x1b[1;38;2;200;69;47m", "\x1b[38;2;232;163;61m"
    lines = coloured(of_job(balanced_job())).splitlines()
    assert [red in line for line in lines[4:10]] == [False, True, False, False, False, False]
    assert amber not in "".join(lines[6:9])
    waiting = coloured(of_job(job_body(job_status(rank(1, waitSeconds=0.6)))))
    assert f"{amber}600 ms" in waiting


def test_all_jobs_by_namespace_and_name():
    views = [of_job(job_body({"phase": "Pending"}, name="vit", namespace="b")), of_job(balanced_job())]
    assert plain(overview(views[::-1], 100, False, ""), 100) == OVERVIEW
    everywhere = plain(overview(views, 100, True, ""), 100).splitlines()
    assert [line.split()[:2] for line in everywhere] == [["namespace", "name"], ["b", "vit"], ["default", "demo"]]


def test_an_empty_list_of_jobs_is_shown():
    assert plain(overview([], 80, False, "there is no job in namespace a", "old news")) == (
        "there is no job in namespace a\nold news"
    )


def test_ranks_are_described_one_by_one():
    reported = job_status(rank(2, **SLOW, **REDUCED_WORK, **INJECTED), ranks=None)
    body = job_body({**reported, "ranks": [rank(2, **SLOW, **REDUCED_WORK, **INJECTED), rank(0, injectedSlowdown=2.0)]})
    assert (
        "\n".join(describe(of_job(body), NOW))
        == """\
rank 0
  group      fast
  node       node-0
  pod        demo-0
  device     cpu
  share      25.0 % of the work
  times      compute 241 ms, matmul 223 ms, wait 52 ms an iteration
  speed      1.00 of the fastest rank's; chi 1.0x
  injected   2.0x asked, not measured yet

rank 2 · straggler for 12 min
  group      fast
  node       node-2
  pod        demo-2
  device     cpu
  share      25.0 % of the work
  times      compute 241 ms, matmul 223 ms, wait 52 ms an iteration
  speed      1.00 of the fastest rank's; chi 4.0x
  balancing  40.1 % of its columns pruned, 33.6 % computed by others
  injected   4.0x asked, 3.9x measured

2 of 4 ranks"""
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"vocabularyRows": 64}, "4 heads, 96 hidden units and 64 vocabulary rows"),
        ({"vocabularyRows": 0}, "4 heads and 96 hidden units"),
        ({}, "4 heads and 96 hidden units"),
    ],
    ids=["of a vocabulary", "no row", "no vocabulary"],
)
def test_a_rank_is_described_with_its_units(rows, words):
    body = job_body(job_status(rank(1, heads=4, hiddenUnits=96, **rows)))
    assert f"  share      25.0 % of the work: {words}" in describe(of_job(body), NOW)


def test_a_job_without_ranks_has_none_to_describe():
    assert describe(of_job(job_body()), NOW) == ["demo: no rank has reported yet; it is new"]


def test_a_stall_is_shown_below_the_ranks():
    found = [{"type": "Stalled", "status": "True", "message": "no iteration since 11:02:03; rank 1 is still computing"}]
    text = shown(of_job(job_body(job_status(conditions=found))))
    assert text.splitlines()[-1] == found[0]["message"]
