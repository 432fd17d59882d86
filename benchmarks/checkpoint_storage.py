"""Seconds to save and to restore a training state, and how much of the disk's own speed that is.

    python benchmarks/checkpoint_storage.py [--megabytes 2000] [--ranks 1 2] [--rounds 3] [--folder DIRECTORY]
                                            [--before OTHER_SOURCE_TREE]

Real CPU ranks hold a stack of feed-forward networks and AdamW's state of it. Each round takes in turn, in a new order:
the disk (the same number of bytes: one file written and synced; read after its pages were dropped from memory) and
every source tree (a gang saves; its files' pages are dropped; a new gang restores and compares what it got). Restoring
includes the check of all digests. Printed: GB/s of min, median and max seconds, and the ratios of the medians' speeds:
to the disk (targets >= 0.8) and to the tree before (targets >= 1); the CPU seconds of rank 0, which depend less on what
else runs on the machine. Nothing is emulated.
"""

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import gang

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("api", "trainer")
WIDTH, UNITS = 1024, 4096
BYTES_PER_PARAMETER = 12  # float32: the parameter and AdamW's two moments
PIECE_BYTES = 16 << 20
ACTS, CPU = ("save", "restore"), "CPU seconds of "
PORT = 29570


# -- a rank ------------------------------------------------------------------------------------------------------------


def rank(act: str, blocks: int) -> None:
    """Run one rank that saves, or restores, once; rank 0 reports the seconds and a sum over the state."""
    import torch
    from heterotp import Session
    from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
    from torch import nn

    torch.manual_seed(0)
    session = Session.from_environment()
    tp = session.shard()
    stack = nn.Sequential(*(ParallelMLP(tp, WIDTH, UNITS, name=f"b.{i}", seed=0) for i in range(blocks)))
    optimizer = torch.optim.AdamW(stack.parameters())
    if act == "save":
        for parameter in stack.parameters():
            parameter.grad = torch.rand_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
    session.watch(stack, optimizer)
    session._iteration = 1
    session.agree("the start", act)  # all ranks are here
    started, busy = time.perf_counter(), time.process_time()
    session.save() if act == "save" else session.restore()
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    state = [value for each in optimizer.state.values() for value in each.values()]
    total = sum(float(tensor.detach().double().sum()) for tensor in (*stack.parameters(), *state))
    session.finish()
    if session.environment.rank == 0:
        gang.print_result([seconds, busy, total])


def gang_of(tree: Path, ranks: int, blocks: int, folder: Path) -> dict[str, float]:
    """Return the seconds of a gang's save and of another gang's restore, and the CPU seconds of rank 0 in each.

    Exits where they hold another state.
    """
    spec = {"tensorParallelDegree": ranks, "workerGroups": [{"name": "r", "processesPerPod": ranks}]}
    spec["training"] = {"initialShares": "even"}
    os.environ["PYTHONPATH"] = os.pathsep.join(str(tree / part) for part in PARTS)
    os.environ["HETEROTP_CHECKPOINT_DIR"] = str(folder)
    found = {}
    for attempt, act in enumerate(ACTS):
        os.environ["HETEROTP_ATTEMPT"] = str(attempt)
        drop(folder)
        found[act] = gang.run(__file__, ["--act", act, "--blocks", str(blocks)], spec, PORT)
    if found["save"][-1] != found["restore"][-1]:
        raise SystemExit(f"{tree}: restored another state than was saved")
    return {
        name: value for act, (seconds, busy, _) in found.items() for name, value in ((act, seconds), (CPU + act, busy))
    }


# -- the disk ----------------------------------------------------------------------------------------------------------


def drop(folder: Path) -> None:
    """Drop the pages of all files from memory; they are on the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def disk(nbytes: int, folder: Path) -> dict[str, float]:
    """Return the seconds to write and sync one file, and to read it from the disk."""
    path, piece, found = folder / "plain", random.Random(0).randbytes(PIECE_BYTES), {}
    folder.mkdir()
    started = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(0, nbytes, PIECE_BYTES):
            file.write(piece)
        os.fsync(file.fileno())
    found["save"] = time.perf_counter() - started
    drop(folder)
    buffer = bytearray(PIECE_BYTES)
    started = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    found["restore"] = time.perf_counter() - started
    return found


# -- all of it ---------------------------------------------------------------------------------------------------------


def measure(
    trees: dict[str, Path], ranks: int, blocks: int, rounds: int, folder: str | None
) -> dict[str, dict[str, list]]:
    """Return the seconds of every round, by what was measured and act."""
    nbytes = 2 * WIDTH * UNITS * BYTES_PER_PARAMETER * blocks
    ways: dict[str, Callable[[Path], dict[str, float]]] = {"disk": lambda where: disk(nbytes, where)}
    for name, tree in trees.items():
        ways[name] = lambda where, tree=tree: gang_of(tree, ranks, blocks, where)
    seconds: dict[str, dict[str, list]] = {name: {} for name in ways}
    names = list(ways)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            with tempfile.TemporaryDirectory(prefix="checkpoint-storage-", dir=folder) as place:
                for act, each in ways[name](Path(place) / "files").items():
                    seconds[name].setdefault(act, []).append(each)
    print(f"{nbytes / 1e9:.2f} GB, {ranks} rank{'s' * (ranks > 1)} on CPU, {rounds} rounds")
    for act in ACTS:
        for name in names:
            each = seconds[name][act]
            low, mid, high = (nbytes / 1e9 / value for value in (max(each), statistics.median(each), min(each)))
            others = [other for other in ("disk", "before") if other in names and name not in ("disk", other)]
            ratios = ((other, statistics.median(seconds[other][act]) / statistics.median(each)) for other in others)
            busy = seconds[name].get(CPU + act)
            texts = [f"{ratio:.2f} of {other}" for other, ratio in ratios]
            texts += [f"CPU {statistics.median(busy) / nbytes * 1e9:.2f} s/GB"] if busy else []
            text = ", ".join(texts)
            print(f"  {act:<8}{name:<7} min {low:.3f}  median {mid:.3f}  max {high:.3f} GB/s  {text}", flush=True)
    return seconds


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="on the disk to be measured")
    parser.add_argument("--before", type=Path, help="another source tree, measured side by side")
    parser.add_argument("--after", type=Path, default=ROOT, help="the source tree (this one)")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--act", choices=ACTS, help=argparse.SUPPRESS)
    parser.add_argument("--blocks", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        rank(arguments.act, arguments.blocks)
        return
    trees = {"before": arguments.before, "after": arguments.after}
    trees = {name: tree.resolve() for name, tree in trees.items() if tree is not None}
    blocks = max(1, round(arguments.megabytes * 1e6 / (2 * WIDTH * UNITS * BYTES_PER_PARAMETER)))
    for ranks in arguments.ranks:
        measure(trees, ranks, blocks, arguments.rounds, arguments.folder)


if __name__ == "__main__":
    main()
