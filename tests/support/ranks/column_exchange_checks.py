"""One rank of the gang behind test_columns_exchanged.py: the partitions that the assigner sets under migration.

Called as: column_exchange_checks.py RANK RANKS FOLDER.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Semi, Zero
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.plans.work_reduction import WorkReduction
from heterotp_trainer.rebalancing.column_assigner import ColumnAssigner
from heterotp_trainer.tensor_parallel.attention import ParallelAttention
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from support.ranks.layer_checks import context
from torch import nn

WIDTH, HEADS, UNITS, DEPTH = 24, 6, 48, 3

# per sender and class (qkv, proj, fc1, fc2) the columns that it prunes and gives away; one rank at least receives
EVERYWHERE = ((4, 9), (2, 3), (3, 11), (1, 5))
ROWS_ONLY = ((6, 0), (0, 4), (5, 0), (2, 6))
ONE_CLASS = ((0, 0), (0, 0), (8, 7), (0, 0))
CASES = {
    "one": {0: EVERYWHERE},
    "the last": {-1: EVERYWHERE},
    "one class": {0: ONE_CLASS},
    "rows only": {-1: ROWS_ONLY},
    "two": {0: EVERYWHERE, -1: ((5, 2), (0, 4), (6, 6), (3, 1))},
    "two, of other classes": {0: ONE_CLASS, 1: ((2, 5), (1, 2), (0, 0), (0, 3))},
    "two, rows beside columns": {0: ROWS_ONLY, -1: ONE_CLASS},
}


def cases(ranks):
    """Return the cases that leave a receiver, by sender and class."""
    return {name: {rank % ranks: t for rank, t in c.items()} for name, c in CASES.items() if len(c) < ranks}


def layers(tp):
    return nn.ModuleList(
        nn.ModuleList(
            (
                ParallelAttention(tp, WIDTH, HEADS, name=f"a{i}", seed=i),
                ParallelMLP(tp, WIDTH, UNITS, name=f"m{i}", seed=i),
            )
        )
        for i in range(DEPTH)
    )


def numbers(columns):
    return None if columns is None else columns.ids.tolist()


def described(linear):
    """Return one linear's column partition in plain numbers."""
    cut = linear.partition
    migrations = [
        {
            "sender": each.sender,
            "outputs": each.outputs,
            "ids": None if each.ids is None else each.ids.tolist(),
            "pieces": [[piece.receiver, piece.start, piece.stop] for piece in each.pieces],
        }
        for each in (cut.migrations if cut else ())
    ]
    parts = {"pruned": numbers(cut.pruned), "given": numbers(cut.migrated)} if cut else {"pruned": None, "given": None}
    return {**parts, "outputs": linear.weight.shape[0], "parallel": linear.parallel, "migrations": migrations}


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=180))
    tp = context(dist.group.WORLD, rank, UnitPlan.from_speeds([1.0, 0.6, 0.8][:ranks], HEADS, UNITS))
    assigner = ColumnAssigner(layers(tp), tp)
    # drawn for every linear by itself, so that no two linears give away the same columns
    policy = BalancingSettings(strategy="SEMI", semi=Semi(zero=Zero(selection="Rd", grain=1)))
    results = {}
    for decision_id, (name, senders) in enumerate(cases(ranks).items(), 1):
        reductions = tuple(
            sorted((sender, tuple(WorkReduction(*t) for t in taken)) for sender, taken in senders.items())
        )
        receivers = tuple((r, 1.0 + r) for r in range(ranks) if r not in senders)
        plan = WorkPlan(decision_id, reductions=reductions, receivers=receivers)
        assigner.apply(plan, Costs((), ((),) * ranks, (1,) * ranks), policy)
        held = {linear.name: described(linear) for linear in assigner.linears}
        results[name] = {"senders": {str(sender): taken for sender, taken in senders.items()}, "held": held}
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
