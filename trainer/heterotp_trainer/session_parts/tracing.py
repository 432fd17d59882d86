"""Traces iterations of this rank by torch.profiler where the control document asks for it.

A trace that fails, for example on a full disk, costs only the trace. While none is asked for, a boundary costs one
comparison.
"""

import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heterotp_api.rank_trace import MOST_BYTES, MOST_EVENTS, RankTrace, TraceRequest, meta_file, profile_file
from torch.profiler import ProfilerActivity, profile

from heterotp_trainer.boundary.iteration_report import IterationStatistics
from heterotp_trainer.devices.phase_clock import Clock
from heterotp_trainer.devices.switch_recorder import SwitchRecorder
from heterotp_trainer.reporting.log_line import log

WRITE_SECONDS = 30.0
FAILURES = (OSError, RuntimeError, ValueError)  # of profiler and files


class Tracing:
    """The trace that is asked for, if there is one; `ask` and `boundary` are called by the training loop."""

    def __init__(
        self, root: Path | None, rank: int, boot: str, clock: Clock, statistics: IterationStatistics, *, cuda: bool
    ) -> None:
        """root: folder of all traces; None: nothing is traced. boot: of this machine. cuda: the device's work, too.

        rank: the number that it started with.
        """
        self._root, self._rank, self._boot = root, rank, boot
        self._activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
        self._clock, self._statistics = clock, statistics
        self._request: TraceRequest | None = None
        self._begun = ""  # uid of the newest request
        self._left = 0  # iterations
        self._own: _Recording | None = None
        self._writer: threading.Thread | None = None

    def ask(self, request: TraceRequest | None) -> None:
        """Take the request of a control document that is in force from now on (all ranks)."""
        if request is None or self._root is None or request.uid == self._begun:
            return
        self._begun = request.uid
        self._end(0)
        self._request, self._left = request, request.steps

    def go_on(self, earlier: "Tracing", iteration: int) -> None:
        """Follow the tracing of before ranks were lost: its trace ends after `iteration`, and is not begun again."""
        earlier._end(iteration)
        self._begun = earlier._begun

    def close(self, iteration: int) -> None:
        """End the trace under way, and wait for its files: a process must not end while PyTorch writes one."""
        self._end(iteration)
        if self._writer is not None:
            self._writer.join(WRITE_SECONDS)

    def boundary(self, iteration: int) -> None:
        """End `iteration` and begin the next one; traced iterations enter no statistic, on any rank."""
        if self._request is None:
            return
        if self._own is not None:
            self._own.bound()
        if self._left == 0:
            self._end(iteration)
            return
        if self._left == self._request.steps and self._request.wants(self._rank):
            self._begin(self._request, iteration)
        self._left -= 1
        self._statistics.leave_out()

    def _begin(self, request: TraceRequest, iteration: int) -> None:
        assert self._root is not None
        folder = self._root / request.uid
        if meta_file(folder, self._rank).exists():  # before this process began
            return
        self._own = _Recording(folder, self._rank, self._boot, self._clock, iteration + 1)
        self._own.start(self._activities)

    def _end(self, iteration: int) -> None:
        own, self._own, self._request = self._own, None, None
        if own is not None:
            self._writer = own.finish(iteration)


def _both_clocks() -> tuple[int, int]:
    """Return unix and monotonic nanoseconds of one moment: of several readings that which the least time passed in."""
    readings = []
    for _ in range(20):
        before, unix, after = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
        readings.append((after - before, unix, (before + after) // 2))
    _, unix, monotonic = min(readings)
    return unix, monotonic


class _Recording:
    """The trace of one rank from its begin to its files."""

    def __init__(self, folder: Path, rank: int, boot: str, clock: Clock, first: int) -> None:
        self._folder, self._rank, self._boot, self._clock, self._first = folder, rank, boot, clock, first
        self._profile: Any = None
        self._recorder: SwitchRecorder | None = None
        self._bounds: list[int] = []
        self._error = ""

    def start(self, activities: Sequence[ProfilerActivity]) -> None:
        """Start the profiler."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self._folder).free
            if free < 2 * MOST_BYTES:
                raise OSError(
                    f"only {free >> 20} MiB are free in {self._folder}, a trace may need {2 * MOST_BYTES >> 20}"
                )
            profiler = profile(activities=activities)
            profiler.start()
            self._profile = profiler
        except FAILURES as error:
            self._error = str(error)
        self._recorder = SwitchRecorder(self._clock, MOST_EVENTS)
        self.bound()

    def bound(self) -> None:
        """Note the end of an iteration, and the begin of the next one."""
        self._bounds.append(time.perf_counter_ns())

    def finish(self, iteration: int) -> threading.Thread:
        """Stop the profiler, and write the files in a thread, which is returned."""
        assert self._recorder is not None
        self._recorder.stop()
        if self._profile is not None:
            try:
                self._profile.stop()
            except FAILURES as error:
                self._error = str(error)
        thread = threading.Thread(target=self._write, args=(iteration,), name="trace", daemon=True)
        thread.start()
        return thread

    def _write(self, iteration: int) -> None:
        recorder = self._recorder
        assert recorder is not None
        try:
            if not self._error:
                self._export(profile_file(self._folder, self._rank))
        except FAILURES as error:
            self._error = str(error)
        unix_ns, monotonic_ns = _both_clocks()
        meta = RankTrace(
            rank=self._rank,
            error=self._error,
            boot=self._boot,
            unix_ns=unix_ns,
            monotonic_ns=monotonic_ns,
            first=self._first,
            bounds=tuple(self._bounds),
            phases=tuple(recorder.phases),
            arrived=tuple(recorder.arrived),
            completed=tuple(recorder.completed),
        )
        try:
            _replace(meta_file(self._folder, self._rank), meta.model_dump_json(by_alias=True))
        except OSError as error:
            self._error = self._error or str(error)
        text = f"the trace failed: {self._error}" if self._error else f"the trace is in {self._folder}"
        log(iteration, text)

    def _export(self, target: Path) -> None:
        temporary = target.with_name(f"{target.stem}.part.json")  # the profiler would compress .gz, and add to no name
        try:
            self._profile.export_chrome_trace(str(temporary))
            size = temporary.stat().st_size
            if size > MOST_BYTES:
                raise ValueError(f"it has {size >> 20} MiB, more than {MOST_BYTES >> 20}: trace fewer steps")
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def _replace(target: Path, text: str) -> None:
    temporary = target.with_name(f".{target.name}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
