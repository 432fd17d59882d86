"""The same Llama of transformers under HeteroTP, PyTorch's parallelize_module and transformers' own tensor parallelism.

    python benchmarks/models.py [--part speed uneven loading lines] [--ranks 2 4] [--rounds 12] [--width 768 ...]

speed     seconds of an iteration (forward, loss, backward) on real ranks: CPU, gloo, one thread each. All three models
          are in the same processes, hold the same weights and take turns by round, so that load on the machine affects
          each; their losses are compared. DTensor has the best layout that it offers: embedding and logits are cut, and
          the loss is computed on shards.
uneven    two emulated ranks, 1 : 0.25, with shares by their speed: iteration over the fluid limit.
loading   what loading adds to the memory of a rank, over its own share of the weights: the peak of resident memory,
          which contains pages of the mapped files, and of anonymous memory alone.
lines     lines of examples/own-llama/ that are not in plain.py, by script; no empty lines, no docstrings.

Needs the extra `hf`; transformers' own way also needs accelerate, and is left out without it.
"""

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import gang

PARTS = ("speed", "uneven", "loading", "lines")
TARGETS = {"DTensor": {2: 0.9, 4: 0.8}, "tp_plan": {2: 1.0, 4: 1.0}}  # ours over theirs
UNEVEN_TARGET, LOADING_TARGET = 1.05, 1.2
SPEEDS = (1.0, 0.25)
SECONDS = 0.5  # of all products of an iteration on one emulated rank of speed 1
WARM_UP, MEASURED = 8, 20  # iterations of the uneven ranks
PORT = 29540
# of a Llama; `rounds` and `repeat` are of the speed part
SIZES = {"width": 768, "hidden": 2688, "depth": 4, "heads": 16, "groups": 8, "rows": 8016, "batch": 4, "tokens": 128}
ROUNDS = {"rounds": 12, "repeat": 2}
SMALL = {"width": 128, "hidden": 448, "depth": 2, "heads": 16, "groups": 8, "rows": 1002, "batch": 2, "tokens": 16}
EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "own-llama"


def llama(sizes: dict[str, int], folder: str) -> str:
    """Write a Llama with random weights in Hugging Face's layout; return its directory."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=sizes["rows"],
        hidden_size=sizes["width"],
        intermediate_size=sizes["hidden"],
        num_hidden_layers=sizes["depth"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["groups"],
        use_cache=False,
    )
    torch.manual_seed(0)
    path = f"{folder}/checkpoint"
    LlamaForCausalLM(config).save_pretrained(path)
    return path


def spawned(program: Callable[..., None], ranks: int, sizes: dict[str, int], *options: object) -> list:  # type: ignore[type-arg]
    """Run program(rank, ranks, folder, sizes, *options) in `ranks` processes; return what rank 0 wrote."""
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        llama(sizes, folder)
        mp.spawn(program, (ranks, folder, sizes, *options), nprocs=ranks)
        found: list = json.loads((Path(folder) / "found.json").read_text())  # type: ignore[type-arg]
        return found


def line(name: str, values: Sequence[float], unit: str = "", target: float | None = None) -> None:
    """Print min, median and max, and the target of the median."""
    bound = f"  (target <= {target})" if target is not None else ""
    print(gang.summary(name, values, unit) + bound, flush=True)


# -- parts --------------------------------------------------------------------------------------------------------


def speed(args: argparse.Namespace) -> None:
    """Print seconds of an iteration of each, and the ratios of rounds."""
    from models_ranks import iterations

    sizes = {name: getattr(args, name) for name in SIZES}
    for ranks in args.ranks:
        rounds = spawned(iterations, ranks, sizes, args.rounds, args.repeat)
        print(f"speed: e={ranks} ({', '.join(f'{name} {value}' for name, value in sizes.items())})")
        for name in rounds[0]:
            line(name, [each[name] for each in rounds], " s")
        for name in [name for name in rounds[0] if name != "ours"]:
            ratios = [each["ours"] / each[name] for each in rounds]
            line(f"/{name}", ratios, target=TARGETS[name].get(ranks))


def uneven(args: argparse.Namespace) -> None:
    """Print the iteration of unlike emulated ranks over the fluid limit."""
    sizes = {name: getattr(args, name) for name in SIZES} if args.tiny else SMALL
    weights = _weights(sizes)
    tera = 6.0 * sizes["batch"] * sizes["tokens"] * weights / args.seconds / 1e12
    groups = [
        {"name": f"r{n}", "relativeSpeed": each, "device": {"type": "emulated", "teraflops": tera * each}}
        for n, each in enumerate(SPEEDS)
    ]
    spec = {"tensorParallelDegree": len(SPEEDS), "workerGroups": groups}
    with tempfile.TemporaryDirectory() as folder:
        given = [llama(sizes, folder), str(sizes["batch"]), str(sizes["tokens"]), str(WARM_UP), str(args.measured)]
        script = str(Path(__file__).with_name("models_ranks.py"))
        found = gang.run(script, given, spec, PORT)
    alone = args.seconds / sum(SPEEDS)
    print(f"uneven: {' : '.join(map(str, SPEEDS))}, shares {found['counts']}; products alone {alone:.3f} s")
    line("seconds", found["seconds"], " s")
    print(f"  fluid limit {found['limit']:.4f} s")
    line("ratio", [each / found["limit"] for each in found["seconds"]], target=UNEVEN_TARGET)


def _weights(sizes: dict[str, int]) -> int:
    """Return the weights whose products are taken: blocks and logits."""
    size = sizes["width"] // sizes["heads"]
    attention = 2 * sizes["width"] * size * (sizes["heads"] + sizes["groups"])
    return sizes["depth"] * (attention + 3 * sizes["width"] * sizes["hidden"]) + sizes["rows"] * sizes["width"]


def loading(args: argparse.Namespace) -> None:
    """Print what loading adds to a rank's memory over its share of the weights."""
    from models_ranks import memory, ways

    sizes = {name: getattr(args, name) for name in SIZES}
    for ranks in args.ranks:
        print(f"loading: e={ranks}, peak over a rank's share of the weights (target of resident <= {LOADING_TARGET})")
        for name in ways():
            found = spawned(memory, ranks, sizes, name)
            share = statistics.fmean(each["share"] for each in found) / 2**20
            for kind in ("resident", "anonymous"):
                line(f"{name}", [each[kind] / each["share"] for each in found], f" {kind} of {share:.0f} MiB")


def lines(args: argparse.Namespace) -> None:
    """Print how many lines each script adds to the plain one."""
    for script in ("heterotp_tp.py", "dtensor.py", "tp_plan.py"):
        print(f"lines: {script:<15} {len(added_lines(script))}")


def added_lines(script: str) -> list[str]:
    """Return the lines of code of a script that plain.py does not have."""
    import ast
    import difflib

    def code(name: str) -> list[str]:
        tree = ast.parse((EXAMPLES / name).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node) is not None:
                where = node.body[0]
                blank.update((name, number) for number in range(where.lineno, (where.end_lineno or 0) + 1))
        text = (EXAMPLES / name).read_text(encoding="utf-8").splitlines()
        return [each for number, each in enumerate(text, 1) if each.strip() and (name, number) not in blank]

    blank: set[tuple[str, int]] = set()
    found = difflib.ndiff(code("plain.py"), code(script))
    return [each[2:] for each in found if each.startswith("+ ")]


def main() -> None:
    """Run the selected parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--tiny", action="store_true", help="sizes of all parts that only try the program")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of all products on an emulated rank of speed 1")
    parser.add_argument("--measured", type=int, default=MEASURED, help="iterations of the uneven ranks")
    for name, value in (SIZES | ROUNDS).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    if args.tiny:
        vars(args).update(SMALL | {"rounds": 2, "repeat": 1, "measured": 4, "seconds": 0.1})
    if importlib.util.find_spec("transformers") is None:
        sys.exit("benchmarks/models.py: needs the package transformers: pip install 'heterotp[hf]'")
    for part in args.part:
        globals()[part](args)


if __name__ == "__main__":
    main()
