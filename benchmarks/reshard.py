"""RESHARD and AUTO against the fluid limit and against all other remedies.

    python benchmarks/reshard.py [--part limits plain remedies wander cpu plan] [--picture FILE.png]

limits    AUTO on 8 emulated ranks, matmul share 0.37 (the paper's ViT-1B) and 0.8, one rank 2, 4, 8 times slower, and
          8, 6, 4, 2 on four: iteration over the fluid limit (FFN stack) or the whole-heads limit (ViT blocks, both
          shown), iterations from onset to balance, iterations until the move is paid back, and how far off
          heterotp simulate was, which knew the calibration and the times before the onset
plain     AUTO with nobody slow against strategy None, in turns in one gang, real CPU ranks and emulated ones
remedies  the same straggler under every remedy: evict, shares by an oracle, MIG, SEMI, ZERO, RESHARD, AUTO
wander    stragglers that move on every 1, 10, 100, 1000 iterations: AUTO against the best fixed strategy (simulated)
cpu       real CPU ranks: a slow-down of 4, before, while and after
plan      the planner at e = 8 and 1,024, milliseconds

Emulated: products, the fixed part and the link take the time of the devices described; processes, exchange, decisions
and moves are real, and the exchange of the ranks over gloo, whose smallest waiting time belongs to the limit.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

from reshard_gang import HEADS, RANKS, REAL, SECONDS, UNITS, WIDTH, run, spec
from support.gang import summary

BEFORE, AFTER = 7, 16
SLOW = {"chi 2": (2.0,), "chi 4": (4.0,), "chi 8": (8.0,), "chi 8,6,4,2": (8.0, 6.0, 4.0, 2.0)}
SHARES = (0.37, 0.8)
PERIODS = (1, 10, 100, 1000)


def phase(strategy: str, chis: Sequence[float], iterations: int, **policy: object) -> dict:
    """Return a phase."""
    return {"policy": {"strategy": strategy, **policy}, "chis": list(chis), "iterations": iterations}


# -- limits ------------------------------------------------------------------------------------------------------


def limit(model: str, share: float, chis: Sequence[float], wait: float) -> tuple[float, float]:
    """Return the fluid limit and the one with whole heads, seconds."""
    from heterotp_trainer.balancing.limit import whole_heads_penalty

    speeds = [1 / chi for chi in chis] + [1.0] * (RANKS - len(chis))
    best = share * SECONDS * RANKS / sum(speeds)
    attention = 4 * WIDTH * WIDTH / (4 * WIDTH * WIDTH + 2 * WIDTH * UNITS) if model == "vit" else 0.0
    whole = best * ((1 - attention) + attention * whole_heads_penalty(speeds, HEADS))
    rest = (1 - share) * SECONDS + wait
    return best + rest, whole + rest


def limits(rounds: int) -> list[dict]:
    """Print AUTO against the limits; return the rows."""
    print("limits: AUTO, 8 emulated ranks; seconds an iteration")
    print(
        "model share slow        | before  onset  after | fluid  whole | ratio min median max |"
        " balanced  paid back  predicted"
    )
    rows = []
    for model in ("ffn", "vit"):
        for share in SHARES:
            for name, chis in SLOW.items():
                found = run(model, [phase("AUTO", (), BEFORE), phase("AUTO", chis, AFTER)], spec(model, share))
                rows.append(limits_row(model, share, name, chis, found))
                print(printed(rows[-1]), flush=True)
    return rows


def limits_row(model: str, share: float, name: str, chis: Sequence[float], found: list[dict]) -> dict:
    """Return one line of the table."""
    before, after = found
    wait = min(cost["wait"] for cost in after["costs"])
    fluid, whole = limit(model, share, chis, wait)
    moves = [n for n, plan in enumerate(after["plans"]) if plan != before["plans"][-1]]
    balanced = moves[0] + 1 if moves else None  # the boundary after that iteration moved them
    tail = after["seconds"][-8:]
    onset = statistics.median(after["seconds"][1 : moves[0]]) if moves else after["seconds"][1]
    gain = onset - statistics.median(tail)
    return {
        "model": model,
        "share": share,
        "name": name,
        "before": statistics.median(before["seconds"][-5:]),
        "onset": onset,
        "after": tail,
        "fluid": fluid,
        "whole": whole,
        "balanced": balanced,
        "paid": after["moved"][1] / gain if gain > 0 else None,
        "predicted": predicted(before, chis),
    }


def predicted(before: dict, chis: Sequence[float]) -> float:
    """Return what heterotp simulate says of AUTO, from what was known before the onset."""
    from heterotp_cli.simulate.machine import machine_of_run
    from heterotp_cli.simulate.scenario import prospect

    machine = machine_of_run(before["calibration"], before["status"])
    slow = [*chis, *[1.0] * (RANKS - len(chis))]
    return next(each.seconds for each in prospect(machine, slow).outcomes if each.name == "AUTO")


def printed(row: dict) -> str:
    """Return a row of the table."""
    held = row["whole"] if row["model"] == "vit" else row["fluid"]
    ratios = sorted(seconds / held for seconds in row["after"])
    middle = statistics.median(row["after"])
    paid = f"{row['paid']:.2f} it" if row["paid"] is not None else "-"
    off = f"{row['predicted'] / middle - 1:+.1%}"
    held_against = f"{ratios[0]:9.3f} {statistics.median(ratios):6.3f} {ratios[-1]:5.3f}"
    return (
        f"{row['model']:5} {row['share']:5.2f} {row['name']:11} | {row['before']:6.3f} {row['onset']:6.3f}"
        f" {middle:6.3f} | {row['fluid']:5.3f} {row['whole']:6.3f} | {held_against} |"
        f" {row['balanced']!s:>5} it {paid:>10} {off:>10}"
    )


# -- plain, remedies, cpu ---------------------------------------------------------------------------------------


def plain(rounds: int) -> list[dict]:
    """Print AUTO over None with nobody slow, in turns."""
    print("plain: an iteration under AUTO over one under None, nobody slow (target <= 1.01)")
    for kind, count in (("emulated", 8), ("cpu", 120)):
        phases = [phase(name, (), count) for _ in range(rounds) for name in ("None", "AUTO")]
        found = run("vit", [phase("AUTO", (), 8), *phases], spec("vit", 0.37, kind=kind))[1:]
        medians = [statistics.median(each["seconds"][3:]) for each in found]
        print(summary(kind, [b / a for a, b in zip(medians[::2], medians[1::2], strict=True)]), flush=True)
    return []


def remedies(rounds: int) -> list[dict]:
    """Print the same straggler under every remedy."""
    print("remedies: one of 8 emulated ranks 8 times slower, ViT blocks, matmul share 0.37; seconds an iteration")
    print("remedy      median   / fluid  deleted")
    slow, share = (8.0,), 0.37
    oracle = [1 / 8.0] + [1.0] * (RANKS - 1)
    cases: list[tuple[str, dict, list[dict]]] = [
        ("None", spec("vit", share), [phase("None", slow, 12)]),
        ("ZERO", spec("vit", share), [phase("ZERO", slow, 16)]),
        ("MIG", spec("vit", share), [phase("MIG", slow, 16)]),
        ("SEMI", spec("vit", share), [phase("SEMI", slow, 16)]),
        ("evict", spec("vit", share), [phase("RESHARD", slow, 16, reshard={"evict": [0]})]),
        ("oracle", spec("vit", share, oracle), [phase("None", slow, 12)]),
        ("RESHARD", spec("vit", share), [phase("RESHARD", slow, 16)]),
        ("AUTO", spec("vit", share), [phase("AUTO", slow, 16)]),
    ]
    rows = []
    for name, job, phases in cases:
        (found,) = run("vit", phases, job)
        seconds = statistics.median(found["seconds"][-6:])
        fluid, _ = limit("vit", share, slow, min(cost["wait"] for cost in found["costs"]))
        rows.append({"name": name, "seconds": seconds, "fluid": fluid, "deleted": found["deleted"]})
        print(f"{name:9} {seconds:8.3f} {seconds / fluid:9.3f} {found['deleted']:8.1%}", flush=True)
    return rows


def cpu(rounds: int) -> list[dict]:
    """Print what AUTO makes of a slow-down on real CPU ranks."""
    found = run(
        "vit",
        [phase("None", (), 60), phase("None", (4.0,), 60), phase("AUTO", (4.0,), 120), phase("AUTO", (), 120)],
        spec("vit", 0.37, kind="cpu"),
    )
    print(f"cpu: {REAL} real ranks on this machine, rank 0 four times slower by sleeping; seconds an iteration")
    for name, each in zip(("nobody slow", "None, slow", "AUTO, slow", "AUTO, well"), found, strict=True):
        print(summary(name, each["seconds"][-30:]), f" heads {each['heads']}, hidden units {each['ffn']}", flush=True)
    return []


# -- simulated --------------------------------------------------------------------------------------------------


def wander(rounds: int) -> list[dict]:
    """Print AUTO against the best fixed strategy under stragglers that move on."""
    from heterotp_cli.bench.emulation import VIT_1B
    from heterotp_cli.bench.simulation import mean_seconds

    print("wander: mean seconds an iteration, ViT-1B, 8 ranks, simulated; AUTO's speed over the best fixed (>= 0.9)")
    rows = []
    for loss in (0.0, 1.0):
        fixed = {"None": {}, "MIG": {}, "RESHARD": {"maxPrunedShare": loss}, "SEMI": {"maxPrunedShare": loss}}
        fixed |= {"ZERO": {"maxPrunedShare": loss}} if loss else {}
        for chi in (2.0, 8.0):
            for period in PERIODS:
                times = {n: mean_seconds(VIT_1B, {"strategy": n, **more}, chi, period) for n, more in fixed.items()}
                auto = mean_seconds(VIT_1B, {"strategy": "AUTO", "maxPrunedShare": loss}, chi, period)
                best = min(times, key=lambda name: times[name])
                rows.append({"loss": loss, "chi": chi, "period": period, "auto": auto, "best": best, **times})
                print(
                    f"  maxPrunedShare {loss:g}, chi {chi:g}, every {period:4}: AUTO {auto:.3f}, best fixed {best} "
                    f"{times[best]:.3f}: {times[best] / auto:.3f} of its speed",
                    flush=True,
                )
    return rows


def plan(rounds: int) -> list[dict]:
    """Print how long the planner takes."""
    import numpy as np
    from heterotp_trainer.balancing.strategies.reshard import Times, balanced, bounds_of

    print("plan: target counts of one family, a quarter of the ranks slow, ms (target <= 5 at 1,024: two families)")
    for ranks in (8, 1024):
        draw = np.random.default_rng(0)
        slowness = np.where(np.arange(ranks) % 4 == 0, 4.0, 1.0) * draw.normal(1, 0.02, ranks)
        units = np.tile(np.linspace(0, 128, 6), (ranks, 1))
        times = Times(units, slowness[:, None] * units)
        bounds, total = bounds_of(64 * ranks, 16, ranks, 16), 64 * ranks
        spent = []
        for _ in range(max(rounds, 5)):
            started = time.perf_counter()
            balanced(times, bounds, total, [64] * ranks)
            spent.append((time.perf_counter() - started) * 1e3)
        print(summary(f"e={ranks}", spent), flush=True)
    return []


def draw(rows: list[dict], path: str) -> None:
    """Draw AUTO's iterations beside the limits, a panel per model and matmul share."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    panels = sorted({(row["model"], row["share"]) for row in rows})
    figure = Figure(figsize=(3.8 * len(panels), 3.8), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (model, share) in zip(axes, panels, strict=True):
        mine = [row for row in rows if (row["model"], row["share"]) == (model, share)]
        names = [row["name"] for row in mine]
        axis.plot(names, [row["onset"] for row in mine], "x", color="tab:red", label="before units move")
        middle = [statistics.median(row["after"]) for row in mine]
        ends = [
            [m - min(r["after"]) for m, r in zip(middle, mine, strict=True)],
            [max(r["after"]) - m for m, r in zip(middle, mine, strict=True)],
        ]
        axis.errorbar(names, middle, ends, fmt="o", color="tab:blue", label="AUTO (median, min to max)")
        axis.plot(names, [row["fluid"] for row in mine], "_", color="tab:green", markersize=22, label="fluid limit")
        if model == "vit":
            axis.plot(
                names, [row["whole"] for row in mine], "_", color="tab:orange", markersize=22, label="whole heads"
            )
        axis.set_title(f"{model}, matmul share {share}", fontsize=10)
        axis.tick_params(axis="x", labelsize=8)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="upper left")
    axes[0].set_ylim(bottom=0)  # of all: they share it
    axes[0].set_ylabel("seconds an iteration (8 emulated ranks)")
    figure.savefig(path, dpi=110)


PARTS: dict[str, Callable[[int], list[dict]]] = {
    "limits": limits,
    "plain": plain,
    "remedies": remedies,
    "wander": wander,
    "cpu": cpu,
    "plan": plan,
}


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--picture", metavar="FILE.png")
    arguments = parser.parse_args()
    found = {name: PARTS[name](arguments.rounds) for name in arguments.part}
    if arguments.picture and found.get("limits"):
        draw(found["limits"], arguments.picture)


if __name__ == "__main__":
    main()
