"""Results of a bench that agree with the paper."""

from heterotp_cli.bench.emulation import VIT_1B
from heterotp_cli.bench.scenarios import FULL

NO = (0.0,) * 4


def step(seconds, pruned=NO, migrated=NO, noise=0.002):
    """A step of the 1B gang at a multiple of the homogeneous iteration; noise: how far samples lie from the median."""
    median, even = VIT_1B.iteration_seconds * seconds, [0.0] * 4
    result = {"steady": median, "samples": [median * (1 + noise * off) for off in (1, -1, 0, 0.5, -0.5)]}
    ratios = {"prunedRatio": [*pruned, *even], "migratedRatio": [*migrated, *even]}
    return result | ratios | {"transition": [], "matmul": [VIT_1B.matmul_seconds] * 8}


def paper_times(noise=0.002, **changed):
    """Results as the paper has them, where it gives numbers; changed: other multiples of the homogeneous iteration."""
    seconds = {"baseline": 1.0, "homogeneous Rd 0.9": 0.7}
    seconds |= {f"homogeneous Pri {gamma}": 1 - 0.37 * gamma for gamma in FULL.gammas} | {"homogeneous Pri 0.9": 0.7}
    pruned, migrated = {}, {}
    for chi in FULL.chis:
        found = {"Baseline": 0.63 + 0.37 * chi, "ZERO-Pri": 1.01, "ZERO-PriDiffR": 1.02, "MIG": 1.4, "SEMI": 1.05}
        found["ZERO-PriDiffE"] = found["Baseline"] / 2.15
        seconds |= {f"{name} chi {chi:g}": value for name, value in found.items()}
        pruned |= {f"ZERO-PriDiffR chi {chi:g}": (0.8, 0, 0, 0), f"SEMI chi {chi:g}": (0.5, 0, 0, 0)}
    several = {"lambda 0": 1.1, "lambda 1": 1.11, "lambda 2": 1.12, "lambda 3": 1.13, "lambda 4": 2.0}
    seconds |= {f"several {name}": value for name, value in (several | {"Baseline": 3.6, "SEMI": 1.12}).items()}
    given = (0.88, 0.83, 0.75, 0.5)
    for name, split in {**{f"lambda {x}": x for x in range(5)}, "SEMI": 3}.items():
        pruned[f"several {name}"], migrated[f"several {name}"] = (
            (0,) * split + given[split:],
            given[:split] + NO[split:],
        )
    for count in (1, 4):
        seconds |= {f"broadcastReduce {count} {gamma}": 1.2 for gamma in FULL.shares}
        seconds |= {f"scatterGather {count} {gamma}": 1.5 for gamma in FULL.shares}
    each = seconds | changed
    return {
        f"time/vit-1b/{name}": step(each[name], pruned.get(name, NO), migrated.get(name, NO), noise) for name in each
    }


def cpu_times(**changed):
    """Results of real CPU ranks with products of 0.7 of an iteration of one second; changed: seconds of other steps."""
    seconds = {"baseline": 1.0, "Baseline chi 8": 5.9, "ZERO-Pri chi 8": 1.05}
    seconds |= {f"homogeneous {name} {gamma}": 1 - 0.6 * gamma for name in ("Rd", "Pri") for gamma in FULL.gammas}
    even = {"matmul": [0.7, 0.7], "unit": [0.1, 0.1], "fixed": [0.1, 0.1], "wait": [0.1, 0.1]}

    def found(value):
        return {"steady": value, "samples": [value * (1 + 0.002 * off) for off in (1, -1, 0, 0.5, -0.5)], **even}

    results = {f"time/cpu-2/{name}": found(value) for name, value in (seconds | changed).items()}
    results["time/cpu-2-AUTO-8/AUTO chi 8"] = found(1.55)
    for count in (1, 4):
        for gamma in FULL.shares:
            results[f"time/gloo-8/broadcastReduce {count} {gamma}"] = found(1.2)
            results[f"time/gloo-8/scatterGather {count} {gamma}"] = found(1.5)
    return results
