"""Query times of the boards on a fleet with a real Prometheus, and the size of the expositions of ranks.

    python benchmarks/boards.py [--jobs 1000] [--ranks 8] [--times 5]

The fleet is synthetic: ten minutes of scrapes, written by the real registries of trainer and operator; before that,
constant series for boards that read hours. Prometheus is real and runs on this machine. Each board is queried over its
own time range, each query several times; the first time counts, because users experience it.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from heterotp_dashboards.alerts import Thresholds
from heterotp_dashboards.boards import boards
from heterotp_dashboards.rule_files import prometheus_rules
from heterotp_trainer.reporting.metrics import JobMetrics, RankMetrics
from support import board_history
from support.board_queries import Query, Window, ask, board_queries, get, resolve_variables
from support.prometheus_server import PrometheusServer

BUDGET_SECONDS = 1.0  # of a panel
MINUTES = 10
POINTS = 1000  # of a line, on a wide screen
HOURS = {  # what is read over so many hours
    6: '{__name__=~"namespace(_heterotpjob)?:.*|heterotp_samples_total|heterotp_operator_(jobs|.*_startup_.*)"}',
    1: '{__name__=~"heterotp_operator_.*|namespace_heterotpjob_phase:.*|process_.*|up",'
    '__name__!~"heterotp_operator_(jobs|.*_startup_.*)"}',
}
RANGES = {"now-6h": 6 * 3600, "now-1h": 3600, "now-30m": 1800}
CHOSEN = {"heterotp-straggler": {"namespace": "team-7", "heterotpjob": "job-7"}}


def exported(level: str, ranks: int) -> None:
    """Print the size of the expositions of a job."""
    rank, zero = RankMetrics(1, level), RankMetrics(0, level)
    JobMetrics(zero.registry, ranks, 1, "gloo")
    series = [sum(len(family.samples) for family in each.registry.collect()) for each in (rank, zero)]
    size = [len(each.text()[0]) for each in (rank, zero)]
    whole = series[0] * (ranks - 1) + series[1]
    print(
        f"metrics.level {level}: a rank {series[0]} series, {size[0]:,} bytes a scrape; "
        f"rank 0 {series[1]} series, {size[1]:,} bytes; a job of {ranks} ranks {whole} series"
    )


def fleet(directory: Path, jobs: int, ranks: int) -> tuple[PrometheusServer, int]:
    """Return a running Prometheus with the series of the fleet and of the recording rules, and their end."""
    started = time.monotonic()
    history = directory / "history.om"
    end = board_history.main(str(history), str(jobs), str(ranks))
    server = PrometheusServer(directory)
    server.load(history)
    server.record(prometheus_rules(Thresholds()), end - 60 * MINUTES, end, board_history.STEP)
    server.start()
    past(server.url, directory / "past.om", end)
    server.stop()
    server.load(directory / "past.om")
    server.start()
    print(f"{jobs} jobs of {ranks} ranks: {time.monotonic() - started:.0f} s to make")
    return server, end


def past(url: str, out: Path, end: int) -> None:
    """Write the hours before with constant values."""
    with out.open("w", encoding="utf-8") as file:
        for hours, selector in HOURS.items():
            found = get(url, "query", query=selector, time=end)["result"]
            lines = [
                board_history.line(series["metric"].pop("__name__"), series["metric"], float(series["value"][1]))
                for series in found
            ]
            for when in range(end - 3600 * hours, end - 60 * MINUTES, board_history.STEP):
                file.writelines(f"{line} {when}\n" for line in lines)
        file.write("# EOF\n")


def panels(run_status: dict, url: str, window: Window) -> dict[str, list[Query]]:
    """Return the queries of each panel, and those of the annotations."""
    values = resolve_variables(run_status, url, window, **CHOSEN.get(run_status["uid"], {}))
    found: dict[str, list[Query]] = {}
    for query in board_queries(run_status, values, window):
        found.setdefault(query.asker, []).append(query)
    return found


def seconds(queries: list[Query], url: str, window: Window, answered: set[str]) -> float:
    """Return the seconds of a panel's queries, run one after the other; record whether they return data."""
    started = time.perf_counter()
    for query in queries:
        if ask(query, url, window):
            answered.add(query.asker)
    return time.perf_counter() - started


def measure(url: str, end: int, times: int) -> None:
    """Print for each board the slowest panel and the sum of all panels."""
    print(f"{'run_status':20} {'range':>8} {'panels':>6} {'all, s':>7}  slowest panel: min median max s")
    for run_status in boards():
        span = RANGES[run_status["time"]["from"]]
        window = Window(end - span, end, max(board_history.STEP // 2, span // POINTS), "2m")
        answered: set[str] = set()
        took = {
            title: sorted(seconds(queries, url, window, answered) for _ in range(times))
            for title, queries in panels(run_status, url, window).items()
        }
        slowest = max(took, key=lambda title: took[title][-1])
        low, middle, high = took[slowest][0], took[slowest][times // 2], took[slowest][-1]
        whole = sum(each[times // 2] for each in took.values())
        asked = f"{run_status['uid']:20} {run_status['time']['from']:>8} {len(took):6} {whole:7.2f}"
        print(f"{asked}  {slowest}: {low:.3f} {middle:.3f} {high:.3f}")
        print(f"  without an answer: {', '.join(sorted(took.keys() - answered)) or 'none'}")
        for title in (title for title in took if took[title][-1] > BUDGET_SECONDS):
            print(f"  over {BUDGET_SECONDS:g} s: {title}: {took[title][-1]:.2f}")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("jobs", 1000), ("ranks", 8), ("times", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args()
    for level in ("basic", "full"):
        exported(level, chosen.ranks)
    with tempfile.TemporaryDirectory() as directory:
        server, end = fleet(Path(directory), chosen.jobs, chosen.ranks)
        try:
            measure(server.url, end, chosen.times)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
