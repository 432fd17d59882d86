"""Iterations are traced exactly where they were asked for; a trace that fails costs only itself."""

import json
import time

import pytest
import torch
from heterotp_api.rank_trace import RankTrace, TraceRequest, meta_file, profile_file
from heterotp_trainer.boundary.iteration_report import IterationStatistics
from heterotp_trainer.devices.phase_clock import PhaseClock
from heterotp_trainer.session_parts import tracing
from heterotp_trainer.session_parts.tracing import Tracing
from support.patience import PATIENCE_SECONDS


class Statistics(IterationStatistics):
    """Notes which iterations are left out."""

    def __init__(self):
        super().__init__()
        self.left_out = 0

    def leave_out(self):
        self.left_out += 1


@pytest.fixture
def clock():
    return PhaseClock()


@pytest.fixture
def make(tmp_path, clock):
    def made(rank=2, root=tmp_path / "traces"):
        return Tracing(root, rank, "boot", clock, Statistics(), cuda=False)

    return made


def trained(tracer, clock, iterations):
    for iteration in iterations:
        clock.switch("matmul")
        torch.ones(iteration, iteration) @ torch.ones(iteration, iteration)
        clock.switch("fixed")
        tracer.boundary(iteration)


def written(folder, rank=2):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not meta_file(folder, rank).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return RankTrace.model_validate_json(meta_file(folder, rank).read_bytes())


def asked(uid="one", **changes):
    return TraceRequest(**{"uid": uid, "steps": 2, "ranks": [2]} | changes)


def test_exactly_the_asked_iterations_are_traced(tmp_path, make, clock):
    tracer = make()
    trained(tracer, clock, [1, 2])
    tracer.ask(asked())
    trained(tracer, clock, [3, 4, 5, 6, 7])
    meta = written(tmp_path / "traces" / "one")
    assert (meta.error, meta.first, len(meta.bounds), meta.boot) == ("", 4, 3, "boot")
    events = json.loads(profile_file(tmp_path / "traces" / "one", 2).read_bytes())["traceEvents"]
    assert sum(each.get("name") == "aten::matmul" for each in events) == 2
    assert [phase for _, phase in meta.phases][1:3] == ["matmul", "fixed"]
    assert tracer._statistics.left_out == 2
    assert "switch" not in vars(clock)
    assert sorted(path.name for path in (tmp_path / "traces" / "one").iterdir()) == ["rank-2.json", "rank-2.meta.json"]


def test_a_request_is_carried_out_once_and_by_its_ranks_alone(tmp_path, make, clock):
    tracer, other = make(), make(rank=1)
    for each in (tracer, other):
        each.ask(asked(steps=1))
        trained(each, clock, [1, 2, 3])
        each.ask(None)
        each.ask(asked(steps=1))  # the document is in force again, for another reason
        trained(each, clock, [4, 5, 6])
    first = written(tmp_path / "traces" / "one")
    assert first.first == 2
    again = make()  # a new process, after a restart
    again.ask(asked(steps=1))
    trained(again, clock, [7, 8, 9])
    assert written(tmp_path / "traces" / "one") == first
    assert (other._statistics.left_out, len(list((tmp_path / "traces" / "one").iterdir()))) == (1, 2)


def test_nothing_is_traced_where_there_is_no_run_directory(make, clock):
    tracer = make(root=None)
    tracer.ask(asked())
    trained(tracer, clock, [1, 2, 3])
    assert tracer._statistics.left_out == 0


def test_a_full_disk_costs_only_the_trace(tmp_path, make, clock, monkeypatch, capsys):
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr(tracing.shutil, "disk_usage", lambda place: usage)
    tracer = make()
    tracer.ask(asked())
    trained(tracer, clock, [1, 2, 3, 4])
    assert "only 1 MiB are free" in written(tmp_path / "traces" / "one").error


def test_a_folder_that_cannot_be_made_is_told_in_the_log(tmp_path, make, clock, capfd):
    (tmp_path / "traces").write_text("a file")
    tracer = make()
    tracer.ask(asked())
    trained(tracer, clock, [1, 2, 3, 4])
    deadline, out = time.monotonic() + PATIENCE_SECONDS, ""
    while "the trace failed" not in out:
        assert time.monotonic() < deadline
        out += capfd.readouterr().out


def test_a_trace_that_is_too_large_is_removed(tmp_path, make, clock, monkeypatch):
    monkeypatch.setattr(tracing, "MOST_BYTES", 10)
    tracer = make()
    tracer.ask(asked())
    trained(tracer, clock, [1, 2, 3, 4])
    folder = tmp_path / "traces" / "one"
    assert "trace fewer steps" in written(folder).error
    assert [path.name for path in folder.iterdir()] == ["rank-2.meta.json"]


def test_a_new_request_ends_the_one_before(tmp_path, make, clock):
    tracer = make()
    tracer.ask(asked(steps=20))
    trained(tracer, clock, [1, 2])
    tracer.ask(asked("two", steps=1))
    trained(tracer, clock, [3, 4, 5])
    assert written(tmp_path / "traces" / "one").first == 2
    assert written(tmp_path / "traces" / "two").first == 4


def test_after_a_loss_of_ranks_a_trace_ends_and_is_not_begun_again(tmp_path, make, clock):
    earlier, tracer = make(), make(rank=1)
    earlier.ask(asked(steps=5))
    trained(earlier, clock, [3, 4])
    tracer.go_on(earlier, 4)
    found = written(tmp_path / "traces" / "one")
    assert (found.first, len(found.bounds)) == (4, 2)
    tracer.ask(asked(steps=5, ranks=[1, 2]))
    trained(tracer, clock, [5, 6])
    assert not meta_file(tmp_path / "traces" / "one", 1).exists() and tracer._own is None


def test_a_trace_is_written_before_the_session_ends(tmp_path, make, clock):
    tracer = make()
    tracer.ask(asked(steps=5))
    trained(tracer, clock, [3, 4])
    tracer.close(4)
    assert meta_file(tmp_path / "traces" / "one", 2).exists(), "no wait is needed"
