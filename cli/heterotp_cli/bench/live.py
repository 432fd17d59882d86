"""Runs the steps of a timing gang by editing its control document, as a user would."""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from heterotp_cli.bench.scenarios import CALIBRATION, PLANS, GangRun, Size, Step
from heterotp_cli.errors import Failed
from heterotp_cli.follow import History, read_history, tail
from heterotp_cli.gang import Gang
from heterotp_cli.gpus import deal, visible
from heterotp_cli.pods import free_ports, pod_commands
from heterotp_cli.workdir import LOGS, read_json, write_json

POLL_SECONDS = 0.2
STEP_SECONDS = 300.0  # longest that one step may take
PHASES = ("matmul", "unit", "fixed", "migrate", "wait", "control")
WARM_UP = 3  # iterations after a change whose caches are cold
DETECTION = 8  # iterations until the work of a straggler of chi >= 2 is reduced: a window and the exchange's delay
END_SECONDS = 60.0
MODULE = "heterotp_cli.bench.rank_time"
Line = dict[str, Any]
Found = TypeVar("Found")


def document(generation: int, step: Step, mode: str | None = None) -> dict[str, Any]:
    """Return the control document of a step."""
    how = {} if mode is None else {"mode": mode}
    injections = [
        {"uid": f"{generation}-{rank}", "ranks": [rank], "slowdown": chi, **how}
        for rank, chi in enumerate(step.chis)
        if chi > 1 and not step.turn
    ]
    if step.turn:
        turns = {"roundRobin": {"every": {"iterations": step.turn}}}
        every = {"uid": f"{generation}", "ranks": list(range(len(step.chis))), "pattern": turns}
        injections = [{**every, "slowdown": max(step.chis), **how}]
    return {"schemaVersion": 1, "generation": generation, "balancing": step.policy, "injections": injections}


def settled(lines: Sequence[Line], step: Step, samples: int) -> list[Line] | None:
    """Return the last lines of a step once its times are steady, None before.

    lines: those of the step's own generation. Of a straggler that wanders: all lines of its way.
    """
    if step.turn:
        way = step.turn * step.places
        return list(lines[:way]) if len(lines) >= way else None
    wait = DETECTION if step.decides else WARM_UP
    measured = [line for line in lines if line["measured"]]
    last = measured[-samples:]
    steady = len(last) == samples and len({line["decisionId"] for line in last}) == 1
    return last if steady and len(lines) >= wait + samples else None


def measured(lines: Sequence[Line], last: Sequence[Line], step: Step, pace: float) -> dict[str, Any]:
    """Return the result of a step in the paper's seconds: the steady state, and the iterations before it.

    Of a straggler that wanders: the mean of all iterations, and that of each place.
    """
    seconds = [line["iterationSeconds"] / pace for line in last]
    if step.turn:
        turns = [statistics.fmean(seconds[at : at + step.turn]) for at in range(0, len(seconds), step.turn)]
        return {"steady": statistics.fmean(turns), "samples": turns, "transition": [], "matmul": []}
    steady = statistics.median(seconds)
    plan = last[0]["decisionId"]
    moving = [line["iterationSeconds"] / pace for line in lines if line["decisionId"] != plan]
    ranks = len(last[0]["ranks"])
    phases = {
        name: [statistics.median(line["ranks"][rank][name] / pace for line in last) for rank in range(ranks)]
        for name in PHASES
        if name in last[0]["ranks"][0]
    }
    return {"steady": steady, "samples": seconds, "transition": moving, **phases}


class TimingGang:
    """One gang, from its start to its end."""

    def __init__(self, run: GangRun, size: Size, workdir: Path) -> None:
        self._run, self._size, self._workdir, self._generation = run, size, workdir, 0
        job = run.model.job(run.name, run.speeds, MODULE, size.pace)
        gpus, _ = deal(job, visible(os.environ))
        commands = pod_commands(job, 1, workdir, free_ports(job), sys.executable, os.environ, gpus)
        (workdir / LOGS).mkdir()
        self._gang = Gang(commands, workdir / LOGS, 1)

    def measure(self, step: Step) -> dict[str, Any]:
        """Run one step of the gang; return the measurements and the decision that was taken."""
        if not self._generation:
            first = sum(CALIBRATION) if self._run.model.mode is None else 0  # real devices are not calibrated
            self._until(step, lambda: len(self._lines()) > first or None)
        self._generation += 1
        write_json(self._workdir / "control.json", document(self._generation, step, self._run.model.mode))
        last = self._until(step, lambda: settled(self._lines(), step, self._size.samples))
        return measured(self._lines(), last, step, self._size.pace) | self._decision(step, last[0]["decisionId"])

    def _until(self, step: Step, found: Callable[[], Found | None]) -> Found:
        """Return the value that is looked for in the gang's lines, as soon as they hold it."""
        deadline = time.monotonic() + STEP_SECONDS
        while time.monotonic() < deadline:
            result = found()
            if result is not None:
                return result
            if not self._gang.alive:
                break
            time.sleep(POLL_SECONDS)
        raise Failed(f"bench: {self._run.name}: step '{step.name}' did not become steady: {self._last_log_line()}")

    def _lines(self) -> list[Line]:
        """Return the lines of the step's own generation; 0: before the first one."""
        history: History = read_history(self._workdir)
        return [line for line in history.entries if line.get("generation") == self._generation]

    def _decision(self, step: Step, plan: int) -> dict[str, Any]:
        """Return the decision of the plan with this number; its prediction in the paper's seconds."""
        found = self._until(step, lambda: (read_json(self._workdir / PLANS) or {}).get(str(plan)))
        predicted = found["predicted"]
        return {**found, "predicted": None if predicted is None else predicted / self._size.pace}

    def _last_log_line(self) -> str:
        self._gang.kill()  # so that all output is written
        logs = sorted((self._workdir / LOGS).glob("rank-*.log"))
        return next((line for log in logs for line in tail(log, 1)), "no rank reported a cause")

    def close(self) -> None:
        """Stop all ranks."""
        self._gang.terminate()
        deadline = time.monotonic() + END_SECONDS
        while self._gang.alive and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self._gang.kill()


def run_gang(run: GangRun, size: Size, keep: Callable[[Step, dict[str, Any]], None]) -> None:
    """Measure all steps of a gang, passing on each result at once."""
    with tempfile.TemporaryDirectory(prefix="heterotp-bench-") as folder:
        gang = TimingGang(run, size, Path(folder))
        try:
            for step in run.steps:
                keep(step, gang.measure(step))
        finally:
            gang.close()
