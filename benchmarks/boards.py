"""How long the boards take on a fleet: every panel's questions on a real Prometheus, and what ranks export.

    python benchmarks/boards.py [--jobs 1000] [--ranks 8] [--times 5]

The fleet is fake (ten minutes of scrapes, written from the real registries of trainer and operator), Prometheus is
real, on this machine. Each question is asked several times; the first time is counted, too, as people meet it.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import board_history
from board_queries import Query, Window, ask, board_queries, resolve_variables
from heterotp_dashboards.alerts import Thresholds
from heterotp_dashboards.boards import boards
from heterotp_dashboards.rule_files import prometheus_rules
from heterotp_trainer.telemetry import JobMetrics, RankMetrics
from prometheus_server import PrometheusServer

BUDGET_SECONDS = 1.0  # of a panel
MINUTES = 10
CHOSEN = {"heterotp-straggler": {"namespace": "team-7", "heterotpjob": "job-7"}}


def exported(level: str, ranks: int) -> None:
    """Print what a job's processes export."""
    rank, zero = RankMetrics(1, level), RankMetrics(0, level)
    JobMetrics(zero.registry, ranks, 1, "gloo")
    series = [sum(len(family.samples) for family in each.registry.collect()) for each in (rank, zero)]
    size = [len(each.text()[0]) for each in (rank, zero)]
    whole = series[0] * (ranks - 1) + series[1]
    print(
        f"metrics.level {level}: a rank {series[0]} series, {size[0]:,} bytes a scrape; "
        f"rank 0 {series[1]} series, {size[1]:,} bytes; a job of {ranks} ranks {whole} series"
    )


def fleet(directory: Path, jobs: int, ranks: int) -> PrometheusServer:
    """Return a running Prometheus that knows the fleet and what its rules recorded."""
    started = time.monotonic()
    history = directory / "history.om"
    board_history.main(str(history), str(jobs), str(ranks))
    server = PrometheusServer(directory)
    server.load(history)
    end = int(time.time()) // board_history.STEP * board_history.STEP
    server.record(prometheus_rules(Thresholds()), end - 60 * MINUTES, end, board_history.STEP)
    server.start()
    print(f"{jobs} jobs of {ranks} ranks, {MINUTES} minutes: {time.monotonic() - started:.0f} s to make")
    return server


def panels(board: dict, url: str, window: Window) -> dict[str, list[Query]]:
    """Return each panel's questions, those of annotations beside them."""
    values = resolve_variables(board, url, window, **CHOSEN.get(board["uid"], {}))
    found: dict[str, list[Query]] = {}
    for query in board_queries(board, values, window):
        found.setdefault(query.asker, []).append(query)
    return found


def seconds(queries: list[Query], url: str, window: Window) -> float:
    """Return how long a panel waits, one question after the other."""
    started = time.perf_counter()
    for query in queries:
        ask(query, url, window)
    return time.perf_counter() - started


def measure(url: str, times: int) -> None:
    """Print, per board, its slowest panels and the sum of all."""
    now = time.time()
    window = Window(now - 60 * MINUTES, now)
    print(f"{'board':20} {'panels':>6} {'all, s':>7}  slowest panel: min median max s")
    for board in boards():
        took = {
            title: sorted(seconds(queries, url, window) for _ in range(times))
            for title, queries in panels(board, url, window).items()
        }
        slowest = max(took, key=lambda title: took[title][-1])
        low, middle, high = took[slowest][0], took[slowest][times // 2], took[slowest][-1]
        whole = sum(each[times // 2] for each in took.values())
        print(f"{board['uid']:20} {len(took):6} {whole:7.2f}  {slowest}: {low:.3f} {middle:.3f} {high:.3f}")
        for title in (title for title in took if took[title][-1] > BUDGET_SECONDS):
            print(f"  over {BUDGET_SECONDS:g} s: {title}: {took[title][-1]:.2f}")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("jobs", 1000), ("ranks", 8), ("times", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args()
    for level in ("basic", "full"):
        exported(level, chosen.ranks)
    with tempfile.TemporaryDirectory() as directory:
        server = fleet(Path(directory), chosen.jobs, chosen.ranks)
        try:
            measure(server.url, chosen.times)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
