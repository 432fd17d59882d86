"""The linear of the logits among all others: its columns are pruned as fc1's are, also where its weight is tied."""

from types import SimpleNamespace

import pytest
import torch
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Zero
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve, LinearClass
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.plans.work_reduction import WorkReduction
from heterotp_trainer.rebalancing import cost_calibration
from heterotp_trainer.rebalancing.column_assigner import ColumnAssigner
from heterotp_trainer.rebalancing.speed_probe import PaceProbe
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.tensor_parallel.unit_spec import vocabulary
from torch import nn

RANKS, WIDTH, UNITS, ROWS = 2, 16, 24, 30
PRUNING = BalancingSettings(strategy="ZERO", zero=Zero(grain=1, selection="Rd", paired_units=True))


def context(rows=(20, 10)):
    """Rank 0 of two."""
    plan = UnitPlan.from_counts([1, 1], [UNITS // 2] * 2, rows)
    return TPContext(None, 0, RANKS, Device(torch.device("cpu"), "cpu"), NullClock(), plan)


def model_of(tp, *, tied):
    mlp = ParallelMLP(tp, WIDTH, UNITS, name="mlp", seed=1)
    head = ColumnParallelLinear(tp, vocabulary(ROWS), WIDTH, name="lm_head", seed=1, bias=False)
    embedding = nn.Module()
    if tied:
        embedding.weight = head.weight
    return nn.ModuleDict({"embed": embedding, "mlp": mlp, "lm_head": head})


def pruned(model, tp, count=4):
    assigner = ColumnAssigner(model, tp)
    assigner.follow(PRUNING)
    classes = assigner.classes()
    curves = tuple(Curve((0.0, float(each.columns[0])), (0.0, 1.0)) for each in classes)
    costs = Costs(classes, (curves,) * RANKS, (1,) * RANKS)
    assigner.apply(WorkPlan(1, reductions=((0, (WorkReduction(count),) * len(classes)),)), costs, PRUNING)
    return assigner


@pytest.mark.parametrize("rows", [(20, 10), (0, 30)], ids=["some rows", "no row"])
def test_the_logits_are_a_class_of_their_own_with_the_rows_of_every_rank(rows):
    tp = context(rows)
    found = {each.name: each for each in ColumnAssigner(model_of(tp, tied=False), tp).classes()}
    logits = found["lm_head"]
    assert (logits.family, logits.parallel, logits.columns, logits.outputs) == ("vocab", "column", (WIDTH,) * 2, rows)
    assert logits.owned_by(tp.unit_plan.rearranged({"vocab": [3, 27]})).outputs == (3, 27)


@pytest.mark.parametrize("tied", [False, True], ids=["alone", "tied"])
def test_columns_of_the_logits_are_pruned_but_a_tied_weight_is_updated_in_all_of_them(tied):
    tp = context()
    model = model_of(tp, tied=tied)
    assigner = pruned(model, tp)
    head = model["lm_head"]
    assert len(head.partition.pruned) == 4 and head.partition.units is None  # pairedUnits is for hidden units
    kept_still = [(weight, dim) for weight, dim, _ in assigner.pruned_parts()]
    assert any(weight is head.weight for weight, _ in kept_still) == (not tied)
    assert any(weight is model["mlp"].fc2.weight for weight, _ in kept_still)


def test_pruned_logits_miss_only_the_pruned_columns():
    tp = context()
    model = model_of(tp, tied=False)
    pruned(model, tp)
    head, x = model["lm_head"], torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(1))
    kept = head.partition.kept.ids
    torch.testing.assert_close(head(x), x[:, kept] @ head.weight[:, kept].t())


def test_pairs_of_hidden_units_are_known_beside_logits():
    tp = context()
    assert ColumnAssigner(model_of(tp, tied=False), tp).problem(PRUNING) is None


def probed(monkeypatch, *families):
    """Return the outputs of the product by which an idle rank is probed; the classes take 1, 2, ... seconds."""
    taken = []
    monkeypatch.setattr(PaceProbe, "_seconds", lambda self, shape: taken.append(shape[2]) or 1.0)
    classes = tuple(
        LinearClass(family, "column", (8,) * 2, (10 * n,) * 2, 4, 1, family) for n, family in enumerate(families, 1)
    )
    curves = tuple(Curve((0.0, 4.0, 8.0), (0.0, float(n), float(n)), 10 * n) for n in range(1, len(classes) + 1))
    PaceProbe(context()).take(Costs(classes, (curves,) * 2, (1, 1)))
    return taken


def test_an_idle_rank_is_probed_by_another_product_than_the_long_one_of_the_logits(monkeypatch):
    assert probed(monkeypatch, "heads", "ffn", "vocab") == [20]
    assert probed(monkeypatch, "vocab") == [10]  # where there is no other


@pytest.mark.parametrize(
    ("rows", "outputs", "largest"),
    [(512, 256, 512), (4096, 1 << 17, 128), (4096, 1 << 22, 16)],
    ids=["all rows", "logits", "very wide logits"],
)
def test_the_transfers_that_are_timed_are_of_a_bounded_size(monkeypatch, rows, outputs, largest):
    sizes = []
    transport = SimpleNamespace(sends=False, send_whole=lambda sent, n, width: sizes.append(n) or (lambda: None))
    transport.return_sum = lambda own, n, width: sizes.append(n)
    for name in ("BroadcastReduceTransport", "ColumnTransport"):
        monkeypatch.setattr(cost_calibration, name, lambda *_: transport)
    monkeypatch.setattr(cost_calibration, "_random", lambda *_: None)
    monkeypatch.setattr(cost_calibration, "_together", lambda tp, work: work() or 1.0)
    classes = [LinearClass("lm_head", "column", (8,), (outputs,), rows, 1, "vocab")]
    cost_calibration._link(context(), classes, torch.Generator())
    assert sorted(set(sizes)) == [8, largest]
