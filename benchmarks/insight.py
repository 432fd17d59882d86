"""Figures of insight: what it costs, whom it blames, how long a trace takes, and what the live page takes.

    python benchmarks/insight.py cost [--ranks 2] [--rounds 20] [--repeat 10]
    python benchmarks/insight.py faults [--ranks 8] [--count 50] [--seed 1] [--judged 8]
    python benchmarks/insight.py trace [--ranks 4] [--steps 3] [--count 3]
    python benchmarks/insight.py page [--ranks 1024] [--seconds 30] [--updates 10]

cost    vit-tiny on real CPU ranks with times by stage, timeline and blame, and without, in alternating rounds: the
        ratio of the iteration times (target <= 1.01). Nothing is emulated.
faults  random faults on real processes with emulated devices (products sleep for their time): a rank is late by 25 to
        100 % of a healthy iteration in attention, FFN, data or transfers. How often the first to blame is this rank,
        and how often in this stage, in the `judged` iterations under the fault (target: all): by medians, by which
        `explain` accuses, and by means, in which a single hiccup of a busy machine counts.
trace   seconds of `heterotp trace RUN --all`, from the command to its end, with a local run of real CPU ranks (target
        <= 10 s).
page    share of a core that the main thread of the live page takes in a real Chromium (its TaskDuration), while a
        played run of so many ranks writes so many iterations a second (target < 50 %). Only the run is played.

Balancing is off in cost and faults. The cause of a slow rank is not measured here.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gang
from gang import summary
from insight_ranks import STAGES, cost_rank, faults_rank, right

PORT = 29490
EMULATED = {"type": "emulated", "teraflops": 0.002, "fixedSeconds": 0.005, "linkLatencySeconds": 0.001}
OFF = {"schemaVersion": 1, "generation": 1, "balancing": {"strategy": "NONE"}, "injections": []}
SMALL = {"hiddenSize": 64, "depth": 2, "heads": 8, "patchSize": 4}
PLAYED = 150  # iterations in the history before the page opens


def spec(ranks: int, **more: Any) -> dict[str, Any]:
    """Return the spec of a gang on this machine."""
    group = {"name": "ranks", "processesPerPod": min(ranks, 8), "pods": -(-ranks // 8), **more.pop("group", {})}
    return {"tensorParallelDegree": ranks, "workerGroups": [group], "training": {"initialShares": "even", **more}}


def unbalanced(options: list[str], body: dict[str, Any]) -> Any:
    """Run the ranks without balancing; return the result of rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "control.json").write_text(json.dumps(OFF), encoding="utf-8")
        os.environ["HETEROTP_CONTROL_DIR"] = folder
        return gang.run(__file__, options, body, PORT, seconds=3600)


def cost(arguments: argparse.Namespace) -> None:
    """Measure and print what insight costs."""
    options = ["cost", "--rounds", str(arguments.rounds), "--repeat", str(arguments.repeat)]
    seconds = unbalanced(options, spec(arguments.ranks))
    print(f"vit-tiny, {arguments.ranks} ranks on CPU, {arguments.rounds} rounds of {arguments.repeat} iterations")
    for mode, each in seconds.items():
        print(summary(mode, each, " s"))
    ratios = [on / off for on, off in zip(seconds["on"], seconds["off"], strict=True)]
    print(summary("on / off", ratios), f"of sums {sum(seconds['on']) / sum(seconds['off']):.4f} (target <= 1.01)")


def blamed(arguments: argparse.Namespace) -> None:
    """Inject faults and print how often the blame is right."""
    options = ["faults", "--count", str(arguments.count), "--seed", str(arguments.seed)]
    options += ["--judged", str(arguments.judged)]
    body = spec(arguments.ranks, group={"device": EMULATED}, model=SMALL, batchSize=16)
    result = unbalanced(options, body)
    found = result["faults"]
    print(f"{arguments.ranks} ranks on emulated devices, {len(found)} faults of seed {arguments.seed}")
    print(f"healthy iteration {result['healthy']:.4f} s, faults judged by {arguments.judged} iterations each")
    for by in ("median", "mean"):
        print_named(found, by)


def print_named(found: list[dict[str, Any]], by: str) -> None:
    """Print how often rank and stage are named first, by stage, and the faults that are not."""
    ranks, stages = right(found, by)
    print(f"first by the {by} of what is lost:\n  {'stage':<10} {'faults':>6} {'rank':>6} {'stage':>6}")
    for stage in (*STAGES, "all"):
        mine = [i for i, each in enumerate(found) if stage in (each["stage"], "all")]
        print(f"  {stage:<10} {len(mine):>6} {sum(ranks[i] for i in mine):>6} {sum(stages[i] for i in mine):>6}")
    for each, *correct in zip(found, ranks, stages, strict=True):
        if not all(correct):
            print(f"  wrong: {json.dumps(each)}")


def trace(arguments: argparse.Namespace) -> None:
    """Trace a local run and print the seconds that it takes."""
    training = {"model": SMALL, "iterations": 1_000_000, "initialShares": "even"}
    body = {
        "apiVersion": "heterotp.io/v1alpha1",
        "kind": "HeteroTPJob",
        "metadata": {"name": "traced"},
        "spec": {**spec(arguments.ranks), "training": training},
    }
    with tempfile.TemporaryDirectory() as folder:
        place, seconds, size = Path(folder, "run"), [], 0
        Path(folder, "job.json").write_text(json.dumps(body), encoding="utf-8")
        with running("run", folder + "/job.json", "--workdir", place) as process:
            until(lambda: (place / "history.jsonl").exists() and lines(place) > 20, process)
            for number in range(arguments.count):
                file, started = Path(folder, f"{number}.json"), time.perf_counter()
                command = ["trace", str(place), "--all", "--steps", str(arguments.steps), "-o", str(file)]
                subprocess.run([sys.executable, "-m", "heterotp_cli", *command], check=True, stdout=subprocess.DEVNULL)
                seconds.append(time.perf_counter() - started)
                size = file.stat().st_size
    print(f"{arguments.steps} iterations of {arguments.ranks} ranks on CPU, {arguments.count} times")
    print(summary("trace", seconds, f" s (target <= 10 s), a file of {size / 1e6:.1f} MB"))


def page(arguments: argparse.Namespace) -> None:
    """Open the live page of a played run and print what its main thread takes."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from heterotp_cli.run_lock import lock
    from support.chromium import chromium
    from support.played_run import Run, append_history, history_entry

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place, stop, written = Path(folder, "many"), threading.Event(), [PLAYED]
        place.mkdir()
        with lock(place), chromium(Path(folder, "profile")) as tab_of:
            run = Run(place, [{"name": "all", "pods": -(-arguments.ranks // 8), "processesPerPod": 8}])
            append_history(place, *(history_entry(i, arguments.ranks) for i in range(1, PLAYED + 1)))

            def play() -> None:
                while not stop.wait(1 / arguments.updates):
                    written[0] += 1
                    append_history(place, history_entry(written[0], arguments.ranks))
                    run.report(iteration=written[0])

            with running("ui", place) as process:
                tab = tab_of()
                tab.open(process.stdout.readline().split()[-1])
                tab.call("Performance.enable")
                thread = threading.Thread(target=play)
                thread.start()
                try:
                    shares = [busy(tab) for _ in range(arguments.seconds)]
                finally:
                    stop.set()
                    thread.join()
                shown = tab.value("run.iteration.at(-1)")
    made, seen = written[0] - PLAYED, shown - PLAYED
    print(
        f"{arguments.ranks} ranks (played), {made / arguments.seconds:.1f} iterations/s written, {seen} of {made} shown"
    )
    print(summary("page", shares, " of a core in each second (target < 0.5)"))


def busy(tab: Any) -> float:
    """Return the share of a second that the page's main thread worked."""

    def worked() -> tuple[float, float]:
        metrics = {each["name"]: each["value"] for each in tab.call("Performance.getMetrics")["metrics"]}
        return metrics["TaskDuration"], metrics["Timestamp"]

    before = worked()
    time.sleep(1.0)
    after = worked()
    return (after[0] - before[0]) / (after[1] - before[1])


@contextmanager
def running(*arguments: Any) -> Any:
    """Give a running command of the command line; it is killed at the end."""
    command = [sys.executable, "-m", "heterotp_cli", *map(str, arguments)]
    output = subprocess.PIPE if arguments[0] == "ui" else subprocess.DEVNULL  # the address of a page is read
    with subprocess.Popen(command, stdout=output, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def lines(place: Path) -> int:
    """Return the iterations in a history."""
    return (place / "history.jsonl").read_text(encoding="utf-8").count("\n")


def until(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 240.0) -> None:
    """Wait until a condition holds; exits where the process ends before, or it takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit("the run did not begin")
        time.sleep(0.1)


def main() -> None:
    """Measure and print the figures of one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("part", choices=("cost", "faults", "trace", "page"))
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--judged", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--updates", type=float, default=10.0)
    arguments = parser.parse_args()
    arguments.count = arguments.count or {"faults": 50}.get(arguments.part, 3)
    if arguments.rank and arguments.part == "cost":
        cost_rank(arguments.rounds, arguments.repeat)
    elif arguments.rank:
        faults_rank(arguments.count, arguments.seed, arguments.judged)
    else:
        arguments.ranks = arguments.ranks or {"cost": 2, "faults": 8, "trace": 4, "page": 1024}[arguments.part]
        {"cost": cost, "faults": blamed, "trace": trace, "page": page}[arguments.part](arguments)


if __name__ == "__main__":
    main()
