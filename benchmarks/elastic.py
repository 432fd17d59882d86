"""What a lost rank costs with runPolicy.elastic, and what the protection costs without a loss, on this machine.

    python benchmarks/elastic.py [--ranks 4] [--rounds 3] [--iterations 60] [--parts figures rejoin picture]
                                 [--picture elastic.svg] [--picture-iterations 600]

figures:
kill      SIGKILL of rank 0, and of the last rank, to the end of the next iteration, s (target <= 2 + an iteration)
restart   the same loss without elasticity: SIGKILL to the next iteration of `heterotp run --resume`, which continues
          from a checkpoint of every tenth iteration; it is started as soon as the run has ended
silent    SIGSTOP to the end of the next iteration, heartbeats missed for 5 s (target <= 15)
loss      greatest relative difference of the losses of the killed runs from those of an unbroken one (target <= 1e-5)
protect   median iteration with mirrors over that without, no loss (target <= 1.05)
rejoin:
pause     of the others, while a rank that was killed is let in, in iterations: the longest time from one iteration to
          the next around it, less a usual one (target <= 2)
absent    s from SIGKILL to the first iteration with the new rank, most of which it loads its libraries
slowed    median iteration of the others while the new process starts, over that before
restart   s from SIGKILL to the next iteration of a run that is restarted, as above
picture: loss and iterations per second over time, with a kill and a comeback, beside a restart from a checkpoint

Real processes over gloo, a small vision transformer on the digits.
"""

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SECONDS = 300.0
ENDLESS = 1_000_000  # iterations of a run that is stopped
AT = 20  # iteration after which a rank is lost


def manifest(ranks: int, iterations: int, *, elastic: bool, rejoin: bool = False) -> dict[str, Any]:
    """Return the job."""
    group = {"name": "a", "pods": ranks, "relativeSpeed": 1, "device": {"type": "cpu"}}
    spec: dict[str, Any] = {
        "tensorParallelDegree": ranks,
        "workerGroups": [group],
        "training": {
            "model": {"hiddenSize": 64, "depth": 4, "heads": 8, "patchSize": 4},
            "iterations": iterations,
            "evaluateEvery": iterations,
        },
        "balancing": {"policy": {"strategy": "None"}},
        "checkpoint": {"everyIterations": 10},
    }
    if elastic:
        spec["runPolicy"] = {"elastic": {"minRanks": 1, "rejoin": rejoin}}
    return {"apiVersion": "heterotp.io/v1alpha1", "kind": "HeteroTPJob", "metadata": {"name": "elastic"}, "spec": spec}


class Run:
    """One `heterotp run`, and how far it is."""

    def __init__(self, folder: Path, job: dict[str, Any]) -> None:
        self.folder, self.workdir = folder, folder / "run"
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "job.json"
        self.path.write_text(json.dumps(job), encoding="utf-8")
        self.process = self._start()

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "heterotp_cli",
            "run",
            str(self.path),
            "--workdir",
            str(self.workdir),
            *options,
        ]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def resume(self) -> None:
        """Wait for the end, and continue from the newest checkpoint."""
        self.process.wait(SECONDS)
        self.process = self._start("--resume")

    def history(self) -> list[dict[str, Any]]:
        """Return the lines of whole iterations, in the order of writing."""
        try:
            lines = (self.workdir / "history.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        except OSError:
            return []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def until(self, lines: int) -> None:
        """Wait for so many lines of the history."""
        deadline = time.monotonic() + SECONDS
        while len(self.history()) < lines:
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.folder}: no {lines} iterations within {SECONDS:.0f} s")
            time.sleep(0.01)

    def ranks(self) -> dict[int, int]:
        """Return the process of each rank."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                variables = dict(v.split("=", 1) for v in (entry / "environ").read_text().split("\0") if "=" in v)
            except OSError:
                continue
            if variables.get("HETEROTP_WORKDIR") == str(self.workdir) and "RANK" in variables:
                found[int(variables["RANK"])] = int(entry.name)
        return found

    def finished(self) -> None:
        """Wait for the end."""
        self.process.wait(SECONDS)

    def losses(self) -> dict[int, float]:
        """Return the loss of each iteration."""
        return {line["iteration"]: line["loss"] for line in self.history()}


def seconds_to_next(run: Run, rank: int, number: signal.Signals, *, resumed: bool = False) -> float:
    """Send a signal to a rank; return the seconds to the end of an iteration that began after it, an upper bound.

    The history shows an iteration at the end of the one after it, and ranks that regroup write down the last ones whose
    update was made: the first one that is certainly repeated is the third after the newest line.
    """
    run.until(AT)
    victim, before = run.ranks()[rank], {line["iteration"] for line in run.history()}
    started = time.monotonic()
    os.kill(victim, number)
    if resumed:
        run.resume()
    reached = max(before) + 3
    deadline = time.monotonic() + SECONDS
    while reached not in run.losses() and time.monotonic() < deadline:
        time.sleep(0.005)
    taken = time.monotonic() - started
    if number == signal.SIGSTOP:
        os.kill(victim, signal.SIGKILL)
    return taken


def measured(run: Run) -> float:
    """Return the median seconds of an iteration that enters statistics."""
    return statistics.median(line["iterationSeconds"] for line in run.history() if line["measured"])


def comebacks(run: Run) -> int:
    """Return how many ranks have come back, as the status says."""
    try:
        status = json.loads((run.workdir / "status.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    return int((status.get("gang") or {}).get("comebacks", 0))


def until_back(run: Run, seconds: float = SECONDS) -> None:
    """Wait for a rank that comes back."""
    deadline = time.monotonic() + seconds
    while not comebacks(run):
        if time.monotonic() > deadline or run.process.poll() is not None:
            raise SystemExit(f"{run.folder}: no rank came back")
        time.sleep(0.005)


def rejoin_round(folder: Path, ranks: int, iterations: int) -> dict[str, float]:
    """Return the figures of a rank that is killed and comes back, beside those of a restart."""
    run = Run(folder / "rejoin", manifest(ranks, ENDLESS, elastic=True, rejoin=True))
    run.until(AT)
    killed, before = time.time(), run.history()
    os.kill(run.ranks()[ranks - 1], signal.SIGKILL)
    until_back(run)
    run.until(len(run.history()) + AT)
    run.process.send_signal(signal.SIGINT)
    run.finished()
    lines = run.history()
    back = next(i for i, line in enumerate(lines) if line["time"] > killed and len(line["ranks"]) == ranks)
    while len(lines[back - 1]["ranks"]) == ranks:  # lines of before the loss that were written after it
        back = next(i for i in range(back + 1, len(lines)) if len(lines[i]["ranks"]) == ranks)
    usual = statistics.median(line["iterationSeconds"] for line in before if line["measured"])
    steps = [after["time"] - line["time"] for line, after in itertools.pairwise(lines)]
    with_fewer = steps[len(before) + 3 : back - 3]
    restarted = Run(folder / "restart", manifest(ranks, iterations, elastic=False))
    restart = seconds_to_next(restarted, ranks - 1, signal.SIGKILL, resumed=True)
    restarted.finished()
    return {
        "pause": max(0.0, max(steps[back - 3 : back + 4]) - usual) / usual,
        "absent": lines[back]["time"] - killed,
        "slowed": statistics.median(with_fewer) / usual if with_fewer else 1.0,
        "restart": restart,
    }


def pictured(folder: Path, ranks: int, iterations: int, path: Path) -> None:
    """Draw loss and throughput over time of two runs that lose a rank after a quarter of their iterations."""
    found = []
    for name, elastic in (("runPolicy.elastic", True), ("restart from a checkpoint", False)):
        run = Run(folder / name.split()[0], manifest(ranks, iterations, elastic=elastic, rejoin=elastic))
        run.until(iterations // 4)
        killed = time.time()
        os.kill(run.ranks()[ranks - 1], signal.SIGKILL)
        if elastic:
            until_back(run)
        else:
            run.resume()
        run.finished()
        found.append((name, run.history(), killed))
    draw(found, path)


def draw(runs: list[tuple[str, list[dict[str, Any]], float]], path: Path) -> None:
    """Write the picture; runs: name, history, unix seconds of the kill."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    losses, speeds = figure.subplots(2, 1, sharex=True)
    for number, (name, lines, killed) in enumerate(runs):
        start = lines[0]["time"]
        times = [line["time"] - start for line in lines]
        losses.plot(times, [line["loss"] for line in lines], label=name, color=f"C{number}")
        seconds = range(int(times[-1]) + 1)
        speeds.step(seconds, [sum(int(t) == second for t in times) for second in seconds], color=f"C{number}")
        for axes in (losses, speeds):
            axes.axvline(killed - start, color=f"C{number}", linestyle=":")
    losses.set_ylabel("loss")
    losses.legend(title="dotted: a rank is killed")
    speeds.set_ylabel("iterations in a second")
    speeds.set_xlabel("seconds")
    figure.savefig(path)


def one_round(folder: Path, ranks: int, iterations: int) -> dict[str, float]:
    """Return the figures of one round."""
    found: dict[str, float] = {}
    plain = Run(folder / "plain", manifest(ranks, iterations, elastic=False))
    plain.finished()
    whole = Run(folder / "whole", manifest(ranks, iterations, elastic=True))
    whole.finished()
    found["protect"] = measured(whole) / measured(plain)
    expected, worst = plain.losses(), 0.0
    for name, rank in (("kill rank 0", 0), ("kill last rank", ranks - 1)):
        run = Run(folder / f"kill-{rank}", manifest(ranks, iterations, elastic=True))
        found[name] = seconds_to_next(run, rank, signal.SIGKILL)
        run.finished()
        losses = run.losses()
        if sorted(losses) != sorted(expected):
            raise SystemExit(f"{run.folder}: iterations are missing")
        worst = max(worst, *(abs(losses[i] - expected[i]) / abs(expected[i]) for i in expected))
    found["loss"] = worst
    silent = Run(folder / "silent", manifest(ranks, iterations, elastic=True))
    found["silent"] = seconds_to_next(silent, 1, signal.SIGSTOP)
    silent.finished()
    restarted = Run(folder / "restart", manifest(ranks, iterations, elastic=False))
    found["restart"] = seconds_to_next(restarted, ranks - 1, signal.SIGKILL, resumed=True)
    restarted.finished()
    found["iteration"] = measured(plain)
    return found


def main() -> None:
    """Print the median, the least and the greatest figure of all rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--parts", nargs="+", choices=["figures", "rejoin", "picture"], default=["figures", "rejoin"])
    parser.add_argument("--picture", type=Path, default=Path("elastic.svg"))
    parser.add_argument("--picture-iterations", type=int, default=600)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for part, measure in (("figures", one_round), ("rejoin", rejoin_round)):
            if part in options.parts:
                places = [Path(folder) / part / str(number) for number in range(options.rounds)]
                shown(part, [measure(place, options.ranks, options.iterations) for place in places], options)
        if "picture" in options.parts:
            pictured(Path(folder) / "picture", options.ranks, options.picture_iterations, options.picture)


def shown(part: str, rounds: list[dict[str, float]], options: argparse.Namespace) -> None:
    """Print what the rounds of one part have measured."""
    print(f"{part}: {options.ranks} ranks, {os.cpu_count()} cores, {len(rounds)} rounds: median [least, greatest]")
    for name in rounds[0]:
        values = [each[name] for each in rounds]
        print(f"{name:16} {statistics.median(values):.4g} [{min(values):.4g}, {max(values):.4g}]")


if __name__ == "__main__":
    main()
