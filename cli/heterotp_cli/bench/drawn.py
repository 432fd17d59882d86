"""From results to figures."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heterotp_cli.bench.accuracy_figures import fixed_skew, homogeneous, imputation
from heterotp_cli.bench.cpu_figures import real_cpu, real_gpu
from heterotp_cli.bench.figure import Figure
from heterotp_cli.bench.scenarios import Size
from heterotp_cli.bench.statistics import COVERAGE, Results
from heterotp_cli.bench.straggler_figures import one_straggler, several
from heterotp_cli.bench.time_figures import dynamic, periods, table1

DRAWN: dict[str, Callable[[Results, Size], Figure]] = {
    "imputation": imputation,
    "homogeneous": homogeneous,
    "fixed-skew": fixed_skew,
    "dynamic": dynamic,
    "table1": table1,
    "one-straggler": one_straggler,
    "several": several,
    "periods": periods,
    "real-cpu": real_cpu,
    "real-gpu": real_gpu,
}


def drawn(figures: Sequence[str], results: Results, size: Size) -> list[Figure]:
    """Return the figures asked for, in the paper's order."""
    return [draw(results, size) for name, draw in DRAWN.items() if name in figures]


def about(mode: str, spent: Mapping[str, Any]) -> str:
    """Return the introduction of the page; spent: how long the measurements took, and on what."""
    versions = ", ".join(f"{name} {spent[name]}" for name in ("heterotp", "torch", "python") if name in spent)
    return (
        f"Measured by 'heterotp bench paper' ({mode}) on {spent.get('cores', os.cpu_count())} cores, "
        f"{spent['seconds'] / 60:.0f} min, last on {spent.get('date', 'an unknown day')}; {versions}. The paper: "
        "Accelerating Heterogeneous Tensor Parallelism via Flexible Workload Control. Times come from eight emulated "
        "accelerators that keep the pace of the paper's machine (eight V100 on PCIe 3), accuracies from real trainings "
        "of a small vision transformer on handwritten digits: compare orders and ratios, not absolute numbers. Put in, "
        "not found: the homogeneous iteration and matmul's share of it (0.37 and 0.47, which follow from the savings "
        "that the paper reports). What follows from that alone is marked 'by construction' and is no verdict; a claim "
        "that can fail stands beside it, mostly on real CPU ranks. Sizes are cut to 1/32 and 24 layers to 4; copying "
        "columns costs nothing there; every rank has a link of its own. Verdicts on times rest on intervals over gang "
        "runs (Student's t; the full size has three runs of each step). Where there is a single run, as in --quick, "
        f"the interval is that of its iterations, by order statistics that cover the median in at least {COVERAGE:.0%} "
        "of cases, and does not hold the difference between one run and the next. RESHARD and AUTO are ours, no part "
        "of the paper."
    )
