"""Traces of ranks become one: on one clock, one process per rank, with our tracks."""

import itertools
import json
import random
from dataclasses import replace

import pytest
from heterotp_api.rank_trace import RankTrace, meta_file, profile_file
from heterotp_cli.errors import Failed
from heterotp_cli.traces.collect import await_ranks, read_rank
from heterotp_cli.traces.merge import DECISIONS, Traced, merged

SECOND = 10**9
UNIX = 1_790_000_000 * SECOND


def traced(rank, ahead=0, boot="a", events=()):
    """Return the trace of iterations 7 and 8, at seconds 100 to 103, by a clock that shows `ahead` seconds more."""
    clock = ahead * SECOND
    meta = RankTrace(
        rank=rank,
        boot=boot,
        unix_ns=UNIX + 200 * SECOND,
        monotonic_ns=clock + 200 * SECOND,
        first=7,
        bounds=tuple(clock + at * SECOND for at in (100, 101, 103)),
        phases=((clock + 100 * SECOND, "matmul"), (clock + 102 * SECOND, "wait")),
        arrived=(ahead + 100.5, ahead + 101.5),
        completed=(ahead + 100.6, ahead + 101.6),
    )
    return Traced(meta, "g", UNIX + 50 * SECOND, events)


def op(name, at, **more):
    """Return an event of the profiler, `at` seconds by the clock of rank 0."""
    return {"ph": "X", "name": name, "pid": 4711, "tid": 4711, "ts": (at - 50) * 1e6, "dur": 5.0, **more}


def named(document, name):
    return [event for event in document["traceEvents"] if event["name"] == name]


def test_times_of_machines_are_moved_to_one_clock():
    document = merged([traced(0, events=[op("a", 100.5)]), traced(3, 5000, "b", [op("b", 102.0)])], ())
    assert named(document, "a")[0]["ts"] == pytest.approx(0.5e6, abs=100)
    assert named(document, "b")[0]["ts"] == pytest.approx(2.0e6, abs=100)
    assert [event["ts"] for event in named(document, "iteration 8")] == pytest.approx([1e6, 1e6], abs=100)
    assert [event["dur"] for event in named(document, "wait")] == pytest.approx([1e6, 1e6])


def test_every_rank_has_a_process_of_its_own_and_flows_do_not_meet():
    flow = {"ph": "s", "id": 5}
    noise = [
        {"ph": "M", "name": "process_name", "pid": 4711},
        op("PyTorch Profiler", 100, pid="Spans"),
        op("x", None or 0, ts="?"),
    ]
    document = merged([traced(rank, events=[op("a", 101), op("b", 101, **flow), *noise]) for rank in (0, 3)], ())
    assert len({event["pid"] for event in named(document, "a")}) == 2
    assert [event["id"] for event in named(document, "b")] == ["0.5", "3.5"]
    assert not named(document, "PyTorch Profiler") and not named(document, "x")
    names = [event["args"]["name"] for event in named(document, "process_name")]
    assert names == ["rank 0 (g)", "rank 3 (g)", "decisions"]
    ours = {event["pid"] for event in named(document, "iteration 7")}
    assert ours == {event["pid"] for event in named(document, "a")}
    json.dumps(document, allow_nan=False)


def test_slices_of_our_tracks_do_not_overlap_for_a_reader_of_whole_nanoseconds():
    draw = random.Random(2)
    moments = sorted({100 * SECOND + draw.randrange(SECOND) for _ in range(2000)})
    one = traced(0)
    phases = tuple((at, phase) for at, phase in zip(moments, ("matmul", "wait") * 1000, strict=False))
    document = merged([replace(one, meta=one.meta.model_copy(update={"phases": phases}))], ())
    found = [event for event in document["traceEvents"] if event["name"] in ("matmul", "wait")]
    assert len(found) > 1900
    for before, after in itertools.pairwise(found):
        assert int(before["ts"] * 1000) + int(before["dur"] * 1000) <= int(after["ts"] * 1000)


def test_devices_have_processes_of_their_own():
    document = merged([traced(0, events=[op("a", 101), op("kernel", 101, pid=0, tid=7)])], ())
    (cpu,), (kernel,) = named(document, "a"), named(document, "kernel")
    assert cpu["pid"] != kernel["pid"]
    assert "rank 0 (g) · 0" in [event["args"]["name"] for event in named(document, "process_name")]


def test_the_decision_in_force_is_a_track():
    made = [{"iteration": at, "decisionId": at, "strategy": "SEMI", "reason": f"at {at}\n"} for at in (2, 8, 9)]
    shown = [
        event for event in merged([traced(0)], made)["traceEvents"] if event["pid"] == DECISIONS and event["ph"] == "X"
    ]
    assert [event["name"] for event in shown] == ["decision 2: SEMI", "decision 8: SEMI"]
    assert shown[0]["args"]["reason"] == "at 2\\n"


# -- collecting -----------------------------------------------------------------------------------------------


def left(folder, rank, body='{"baseTimeNanoseconds": 1, "traceEvents": [{}, 3]}', **changes):
    profile_file(folder, rank).write_text(body)
    meta_file(folder, rank).write_text(RankTrace(rank=rank, bounds=(1, 2), **changes).model_dump_json(by_alias=True))


def test_what_ranks_left_is_read(tmp_path):
    left(tmp_path, 1)
    found = read_rank(tmp_path, 1, "g")
    assert (found.meta.rank, found.base_ns, found.events) == (1, 1, [{}])


@pytest.mark.parametrize(
    ("body", "changes", "named"),
    [
        ("{}", {"error": "the disk is full"}, "rank 1: the disk is full"),
        ('{"traceEvents": [', {}, "it is not complete"),
        ("[]", {}, "it is not complete"),
        ('{"baseTimeNanoseconds": null, "traceEvents": []}', {}, "it is not complete"),
    ],
)
def test_failed_and_damaged_traces_are_named(tmp_path, body, changes, named):
    left(tmp_path, 1, body, **changes)
    with pytest.raises(Failed, match=named):
        read_rank(tmp_path, 1, "g")


def test_a_trace_is_awaited_until_the_run_ends_or_the_time_is_over(tmp_path):
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds
        if now[0] > 3:
            left(tmp_path, 2)

    left(tmp_path, 1)
    wait = (lambda: now[0], sleep)
    with pytest.raises(Failed, match="the run has ended before rank 2 had written a trace"):
        await_ranks(tmp_path, [1, 2], lambda: True, 100, *wait)
    with pytest.raises(Failed, match="rank 2 wrote no trace within 2 s"):
        await_ranks(tmp_path, [1, 2], lambda: False, 2, *wait)
    await_ranks(tmp_path, [1, 2], lambda: False, 100, *wait)
