"""RESHARD and AUTO against the fluid limit and against all other remedies.

    python benchmarks/reshard.py [--part limits plain remedies wander cpu plan] [--picture FILE.png]

limits    AUTO on 8 emulated ranks, matmul share 0.37 (the paper's ViT-1B) and 0.8, one rank 2, 4, 8 times slower, and
          8, 6, 4, 2 on four: iteration over the fluid limit (FFN stack) or the whole-heads limit (ViT blocks, both
          shown), iterations from onset to balance, iterations until the move is paid back, and what heterotp simulate's
          planner predicted
plain     AUTO with nobody slow against strategy None, in turns in one gang, real CPU ranks and emulated ones
remedies  the same straggler under every remedy: evict, shares by an oracle, MIG, SEMI, ZERO, RESHARD, AUTO
wander    stragglers that move on every 1, 10, 100, 1000 iterations: AUTO against the best fixed strategy (simulated)
cpu       real CPU ranks: a slow-down of 4, before, while and after
plan      the planner at e = 8 and 1,024, milliseconds

Emulated: products, the fixed part and the link take the time of the devices described; processes, exchange, decisions
and moves are real, and the exchange of the ranks over gloo, whose smallest waiting time belongs to the limit.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence

import gang
from gang import summary

RANKS, WIDTH, ROWS, DEPTH, HEADS, UNITS = 8, 64, (2, 8), 2, 32, 1024
SECONDS = 1.5  # of a homogeneous iteration
LATENCY = 0.002
BYTES_PER_SECOND = 2e6  # so that a move of these small stacks takes what one of ViT-1B takes, relative to an iteration
REAL = 2  # real CPU ranks: as many as this machine has cores
PORT = 29520
BEFORE, AFTER = 10, 22
SLOW = {"chi 2": (2.0,), "chi 4": (4.0,), "chi 8": (8.0,), "chi 8,6,4,2": (8.0, 6.0, 4.0, 2.0)}
SHARES = (0.37, 0.8)
PERIODS = (1, 10, 100, 1000)


def operations(model: str) -> float:
    """Return the operations of all prunable products of one iteration."""
    attention = 4 * WIDTH * WIDTH if model == "vit" else 0
    return 6.0 * ROWS[0] * ROWS[1] * (2 * WIDTH * UNITS + attention) * DEPTH


def spec(model: str, share: float, speeds: Sequence[float] = (), kind: str = "emulated") -> dict:
    """Return a job of 8 equal emulated ranks, or of real ones; speeds: shares are declared by them."""
    device = {"type": "cpu"}
    if kind == "emulated":
        device = {
            "type": "emulated",
            "teraflops": operations(model) / RANKS / (share * SECONDS) / 1e12,
            "fixedSeconds": (1 - share) * SECONDS,
            "linkLatencySeconds": LATENCY,
            "linkBytesPerSecond": BYTES_PER_SECOND,
        }
    ranks = RANKS if kind == "emulated" else REAL
    given = list(speeds) or [1.0] * ranks
    groups = [{"name": f"r{n}", "relativeSpeed": speed, "device": device} for n, speed in enumerate(given)]
    return {"tensorParallelDegree": ranks, "workerGroups": groups, "training": {"initialShares": "declared"}}


def document(generation: int, policy: dict, chis: Sequence[float]) -> str:
    """Return a control document: a policy, and these slow-downs of the first ranks."""
    slow = [{"uid": f"{n}", "ranks": [n], "slowdown": chi} for n, chi in enumerate(chis) if chi > 1]
    return json.dumps({"generation": generation, "balancing": policy, "injections": slow})


# -- a rank -----------------------------------------------------------------------------------------------------


def rank(model: str, phases: list[dict]) -> None:
    """Be one rank: go through phases of (policy, chis, iterations); rank 0 says what every iteration took."""
    import torch
    from heterotp_api.control import ControlDocument
    from heterotp_api.training import ModelShape
    from heterotp_trainer import Session
    from heterotp_trainer.model.vit import Block
    from heterotp_trainer.optimization import EagerAdamW
    from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
    from torch import nn

    torch.set_num_threads(1)
    session = Session.from_environment()
    real = not session.device.emulated
    width, rows = (256, (16, 33)) if real else (WIDTH, ROWS)
    tp = session.shard(heads=HEADS, ffn=UNITS, width=width, rows=rows[0] * rows[1])
    shape = ModelShape(width, DEPTH, HEADS, 1, UNITS // width)
    if model == "vit":
        stack: nn.Module = nn.Sequential(*(Block(tp, shape, name=f"b.{i}", seed=0) for i in range(DEPTH)))
    else:
        stack = nn.Sequential(*(ParallelMLP(tp, width, UNITS, name=f"b.{i}", seed=0) for i in range(DEPTH)))
    session.watch(stack, EagerAdamW(stack.parameters()))
    batch = torch.randn(*rows, width, generator=torch.Generator().manual_seed(0))
    iteration, said = 0, []
    for number, phase in enumerate(phases):
        told = ControlDocument.model_validate_json(document(number + 1, phase["policy"], phase["chis"]))
        session.balancer.apply(told.balancing)
        session._injector.injections = told.injections
        seconds, plans = [], []
        for _ in range(phase["iterations"]):
            iteration += 1
            started = time.perf_counter()
            stack.zero_grad(set_to_none=True)
            stack(batch).square().mean().backward()
            session.step()
            session.boundary(iteration)
            seconds.append(time.perf_counter() - started)
            plans.append(session.tp.plan.hash)
        said.append({"seconds": seconds, "plans": plans, **facts(session)})
    session.finish()
    if session.environment.rank == 0:
        gang.say(said)


def facts(session) -> dict:  # type: ignore[no-untyped-def]
    """Return what a phase ended with."""
    board, balancer = session.observer and session.observer.board, session.balancer
    return {
        "costs": [vars(cost) for cost in board.costs()] if board else [],
        "moved": [board.moves, board.moved_seconds] if board else [0, 0.0],
        "deleted": statistics.fmean(each.pruned for each in board.effects) if board and board.effects else 0.0,
        "predicted": balancer.plan.predicted_seconds,
        "heads": balancer.tp.plan.counts("heads"),
        "ffn": balancer.tp.plan.counts("ffn"),
        "reason": balancer.plan.reason,
    }


def run(model: str, phases: list[dict], job: dict) -> list[dict]:
    """Run a gang through its phases."""
    return gang.run(__file__, ["--model", model, "--phases", json.dumps(phases)], job, PORT)  # type: ignore[no-any-return]


def phase(strategy: str, chis: Sequence[float], iterations: int, **policy: object) -> dict:
    """Return a phase."""
    return {"policy": {"strategy": strategy, **policy}, "chis": list(chis), "iterations": iterations}


# -- limits ------------------------------------------------------------------------------------------------------


def limit(model: str, share: float, chis: Sequence[float], wait: float) -> tuple[float, float]:
    """Return the fluid limit and the one with whole heads, seconds."""
    from heterotp_trainer.balancing.costs import whole_heads_penalty

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
        "predicted": after["predicted"],
    }


def printed(row: dict) -> str:
    """Return a row of the table."""
    held = row["whole"] if row["model"] == "vit" else row["fluid"]
    ratios = sorted(seconds / held for seconds in row["after"])
    middle = statistics.median(row["after"])
    paid = f"{row['paid']:.2f} it" if row["paid"] is not None else "-"
    predicted = f"{row['predicted'] / middle - 1:+.1%}" if row["predicted"] else "-"
    held_against = f"{ratios[0]:9.3f} {statistics.median(ratios):6.3f} {ratios[-1]:5.3f}"
    return (
        f"{row['model']:5} {row['share']:5.2f} {row['name']:11} | {row['before']:6.3f} {row['onset']:6.3f}"
        f" {middle:6.3f} | {row['fluid']:5.3f} {row['whole']:6.3f} | {held_against} |"
        f" {row['balanced']!s:>5} it {paid:>10} {predicted:>10}"
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
        ("ZERO", spec("vit", share), [phase("ZERO", slow, 20)]),
        ("MIG", spec("vit", share), [phase("MIG", slow, 20)]),
        ("SEMI", spec("vit", share), [phase("SEMI", slow, 20)]),
        ("evict", spec("vit", share), [phase("RESHARD", slow, 20, reshard={"evict": [0]})]),
        ("oracle", spec("vit", share, oracle), [phase("None", slow, 12)]),
        ("RESHARD", spec("vit", share), [phase("RESHARD", slow, 20)]),
        ("AUTO", spec("vit", share), [phase("AUTO", slow, 20)]),
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
    from heterotp_trainer.balancing.reshard import Times, balanced, bounds_of

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
        axis.set_ylim(0)
        axis.tick_params(axis="x", labelsize=8)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
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
    parser.add_argument("--model", default="vit", help=argparse.SUPPRESS)
    parser.add_argument("--phases", default="[]", help=argparse.SUPPRESS)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        rank(arguments.model, json.loads(arguments.phases))
        return
    found = {name: PARTS[name](arguments.rounds) for name in arguments.part}
    if arguments.picture and found.get("limits"):
        draw(found["limits"], arguments.picture)


if __name__ == "__main__":
    main()
