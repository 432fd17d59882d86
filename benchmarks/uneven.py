"""Uneven shards against their limits: 8 emulated ranks, one 1, 2, 4 or 8 times slower, shares by declared speed.

    python benchmarks/uneven.py [--iterations 12] [--chi 1 2 4 8] [--picture FILE.png]

Prints and draws, per matmul share (0.37: the paper's ViT-1B; 0.8) and model, the iteration time over its limit:
- an FFN-only stack against the fluid limit F + M e / sum(1/chi) + min W,
- ViT blocks with 32 heads against the same with whole heads for the attention's third of M; both limits are shown.
Emulated: matrix products, the fixed part and the link latency take the time of the devices described; what is
real is the exchange of the ranks over gloo, whose smallest waiting time over the ranks belongs to the limit.
"""

import argparse
import statistics

import gang

RANKS, WIDTH, ROWS, DEPTH, HEADS, UNITS = 8, 64, (2, 8), 2, 32, 1024
SECONDS = 2.0  # of a homogeneous iteration, fixed part and matmul together
LATENCY = 0.002
PORT = 29480


def matmul_operations(model: str) -> float:
    """Return the operations of all prunable products of one iteration, forward and backward."""
    rows = ROWS[0] * ROWS[1]
    ffn = 2 * WIDTH * UNITS
    attention = 4 * WIDTH * WIDTH if model == "vit" else 0
    return 6.0 * rows * (ffn + attention) * DEPTH


def manifest(model: str, share: float, chi: float) -> dict:
    """Return the job's spec: seven ranks of speed 1 and one of speed 1 / chi."""
    teraflops = matmul_operations(model) / RANKS / (share * SECONDS) / 1e12

    def group(name: str, processes: int, slower: float) -> dict:
        device = {
            "type": "emulated",
            "teraflops": teraflops / slower,
            "fixedSeconds": (1 - share) * SECONDS,
            "linkLatencySeconds": LATENCY,
        }
        return {"name": name, "processesPerPod": processes, "relativeSpeed": 1 / slower, "device": device}

    groups = [group("normal", RANKS - 1, 1.0), group("slow", 1, chi)]
    return {"tensorParallelDegree": RANKS, "workerGroups": groups, "training": {"initialShares": "declared"}}


def limits(model: str, share: float, chi: float, smallest_wait: float) -> tuple[float, float]:
    """Return the fluid limit and the one with whole heads, seconds."""
    from heterotp_trainer.balancing.costs import whole_heads_penalty

    speeds = [1.0] * (RANKS - 1) + [1 / chi]
    best = share * SECONDS * RANKS / sum(speeds)
    rest = (1 - share) * SECONDS + smallest_wait
    attention = 4 * WIDTH * WIDTH / (4 * WIDTH * WIDTH + 2 * WIDTH * UNITS) if model == "vit" else 0.0
    whole = best * ((1 - attention) + attention * whole_heads_penalty(speeds, HEADS))
    return best + rest, whole + rest


def rank(model: str, iterations: int) -> None:
    """Be one rank: train the stack for some iterations; rank 0 prints what it measured."""
    import torch
    from heterotp_api.training import ModelShape
    from heterotp_trainer import Session
    from heterotp_trainer.model.vit import Block
    from heterotp_trainer.optimization import EagerAdamW
    from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
    from torch import nn

    torch.set_num_threads(1)
    session = Session.from_environment()
    tp = session.shard(heads=HEADS, ffn=UNITS, width=WIDTH, rows=ROWS[0] * ROWS[1])
    shape = ModelShape(WIDTH, DEPTH, HEADS, 1, UNITS // WIDTH)
    if model == "vit":
        stack: nn.Module = nn.Sequential(*(Block(tp, shape, name=f"{i}", seed=0) for i in range(DEPTH)))
    else:
        stack = nn.Sequential(*(ParallelMLP(tp, WIDTH, UNITS, name=f"{i}", seed=0) for i in range(DEPTH)))
    session.watch(stack, EagerAdamW(stack.parameters()))
    batch = torch.randn(*ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
    for iteration in range(1, iterations + 1):
        stack.zero_grad(set_to_none=True)
        stack(batch).square().mean().backward()
        session.step()
        session.boundary(iteration)
    session.finish()
    if session.environment.rank == 0:
        assert session.observer is not None
        board = session.observer.board
        costs = [vars(cost) for cost in board.costs()]
        gang.say({"seconds": board.step_seconds, "costs": costs})


def row(model: str, share: float, chi: float, iterations: int) -> dict:
    """Measure one setting; return its line of the table, seconds."""
    options = ["--model", model, "--iterations", str(iterations)]
    result = gang.run(__file__, options, manifest(model, share, chi), PORT)
    fluid, whole = limits(model, share, chi, min(cost["wait"] for cost in result["costs"]))
    return {"model": model, "share": share, "chi": chi, "measured": result["seconds"], "fluid": fluid, "whole": whole}


def printed(row: dict) -> str:
    """Return a row of the table."""
    limit = row["whole"] if row["model"] == "vit" else row["fluid"]
    ratios = sorted(seconds / limit for seconds in row["measured"])
    return (
        f"{row['model']:5} {row['share']:5.2f} {row['chi']:4g} | {statistics.median(row['measured']):9.3f}"
        f" {row['fluid']:6.3f} {row['whole']:13.3f} |"
        f" {ratios[0]:9.3f} {statistics.median(ratios):7.3f} {ratios[-1]:5.3f}"
    )


def draw(rows: list[dict], path: str) -> None:
    """Draw measured times and both limits over chi, one panel per model and matmul share."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    panels = sorted({(row["model"], row["share"]) for row in rows})
    figure, axes = plt.subplots(1, len(panels), figsize=(3.6 * len(panels), 3.4), sharey=True, squeeze=False)
    for axis, (model, share) in zip(axes[0], panels, strict=True):
        mine = [row for row in rows if (row["model"], row["share"]) == (model, share)]
        chis = [row["chi"] for row in mine]
        waiting = [(1 - share + share * chi) * SECONDS for chi in chis]
        axis.plot(chis, waiting, ":", color="tab:red", label="even shares (computed)")
        axis.plot(chis, [statistics.median(row["measured"]) for row in mine], "o", color="tab:blue", label="measured")
        axis.plot(chis, [row["fluid"] for row in mine], "-", color="tab:green", label="fluid limit")
        if model == "vit":
            axis.plot(chis, [row["whole"] for row in mine], "--", color="tab:orange", label="whole-heads limit")
        axis.set(title=f"{model}, matmul share {share}", xlabel="chi of one of 8 ranks", xscale="log", xticks=chis)
        axis.set_xticklabels([f"{chi:g}" for chi in chis])
        axis.minorticks_off()
        axis.set_ylim(0, 3 * SECONDS)
        axis.legend(fontsize="small")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("seconds per iteration (emulated)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure all settings in turn, print the table, draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--chi", type=float, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--model", choices=["ffn", "vit"])
    parser.add_argument("--picture", metavar="FILE.png")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        rank(arguments.model, arguments.iterations)
        return
    print("8 emulated ranks; seconds an iteration; ratios: ffn over the fluid limit, vit over whole heads")
    print("model share  chi | iteration  fluid   whole heads | ratio min  median  max")
    rows = []
    for model in [arguments.model] if arguments.model else ["ffn", "vit"]:
        for share in (0.37, 0.8):
            for chi in arguments.chi:
                rows.append(row(model, share, chi, arguments.iterations))
                print(printed(rows[-1]), flush=True)
    if arguments.picture:
        draw(rows, arguments.picture)


if __name__ == "__main__":
    main()
