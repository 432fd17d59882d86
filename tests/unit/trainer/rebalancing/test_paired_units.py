"""pairedUnits: which layers share hidden units, also of a gated network, and what is refused."""

import pytest
import torch
import torch.nn.functional as F
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Zero
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.plans.work_reduction import WorkReduction
from heterotp_trainer.rebalancing.column_assigner import ColumnAssigner
from heterotp_trainer.rebalancing.paired_units import paired
from heterotp_trainer.tensor_parallel.attention import ParallelAttention
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, gated_ffn
from torch import nn

RANKS, WIDTH, UNITS = 2, 16, 24  # hidden units of one rank
PARTS = gated_ffn(RANKS * UNITS)
PAIRED = BalancingSettings(strategy="ZERO", zero=Zero(grain=1, paired_units=True, selection="Rd"))
PLAIN = BalancingSettings(strategy="ZERO", zero=Zero(grain=1, selection="Rd"))


@pytest.fixture
def tp():
    """Rank 0 of two."""
    plan = UnitPlan.even(RANKS, RANKS, RANKS * UNITS)
    return TPContext(None, 0, RANKS, Device(torch.device("cpu"), "cpu"), NullClock(), plan)


def column(tp, name, spec=PARTS["up"]):
    return ColumnParallelLinear(tp, spec, WIDTH, name=name, seed=1)


def row(tp, name):
    return RowParallelLinear(tp, PARTS["down"], WIDTH, name=name, seed=1)


class Gated(nn.Module):
    """down(silu(gate x) * up x), [B, D] -> [B, D]."""

    def __init__(self, tp, name="m"):
        super().__init__()
        self.gate, self.up, self.down = column(tp, f"{name}.gate"), column(tp, f"{name}.up"), row(tp, f"{name}.down")

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Fused(nn.Module):
    """Gate and up in one layer, the two rows of a hidden unit side by side."""

    def __init__(self, tp):
        super().__init__()
        self.both = column(tp, "f.both", ShardSpec("ffn", 0, 2, RANKS * UNITS))
        self.down = row(tp, "f.down")

    def forward(self, x):
        both = self.both(x).unflatten(-1, (-1, 2))
        return self.down(F.silu(both[..., 0]) * both[..., 1])


class Block(nn.Module):
    """Layers as attributes of one module, in the given order."""

    def __init__(self, *layers):
        super().__init__()
        for layer in layers:
            self.add_module(layer.name.replace(".", "_"), layer)


def names(model):
    pairs, unpaired = paired(model)
    found = {last.name: [first.name for first in firsts] for last, firsts in pairs.items()}
    return found, [each.name for each in unpaired]


def test_the_layers_of_each_kind_of_network(tp):
    model = nn.ModuleList(
        [
            ParallelAttention(tp, WIDTH, RANKS, name="a", seed=1),
            ParallelMLP(tp, WIDTH, RANKS * UNITS, name="p", seed=1),
            Gated(tp),
            Fused(tp),
            Block(row(tp, "late.down"), column(tp, "late.up")),  # in whatever order
        ]
    )
    pairs = {"p.fc2": ["p.fc1"], "m.down": ["m.gate", "m.up"], "f.down": ["f.both"], "late.down": ["late.up"]}
    assert names(model) == (pairs, [])


def test_several_networks_of_one_module(tp):
    layers = (column(tp, "gate1"), column(tp, "up1"), row(tp, "down1"), column(tp, "up2"), row(tp, "down2"))
    assert names(Block(*layers)) == ({"down1": ["gate1", "up1"], "down2": ["up2"]}, [])


@pytest.mark.parametrize(
    ("wrap", "unpaired"),
    [
        (lambda gate, up, down: Block(down), ["gate", "up", "down"]),
        (lambda gate, up, down: nn.Sequential(up, nn.Sequential(gate), down), ["gate"]),
    ],
    ids=["the first layers elsewhere", "the gate elsewhere"],
)
def test_layers_whose_partners_are_not_known_are_refused_by_name(tp, wrap, unpaired):
    gate, up, down = column(tp, "gate"), column(tp, "up"), row(tp, "down")
    model = nn.ModuleList([wrap(gate, up, down), nn.Sequential(gate), nn.Sequential(up)])
    assert sorted(names(model)[1]) == sorted(unpaired)
    problem = ColumnAssigner(model, tp).problem(PAIRED)
    assert problem is not None and problem.startswith("zero.pairedUnits: true: ") and "\n" not in problem
    assert all(f"'{name}'" in problem for name in unpaired)
    assert ColumnAssigner(model, tp).problem(PLAIN) is None


def test_known_partners_are_not_refused(tp):
    assert ColumnAssigner(Gated(tp), tp).problem(PAIRED) is None


def cut(model, tp, policy, pruned=8):
    """Take `pruned` columns of every layer of rank 0; return the assigner."""
    assigner = ColumnAssigner(model, tp)
    assigner.follow(policy)
    classes = assigner.classes()
    curves = tuple(Curve((0.0, float(each.columns[0])), (0.0, 1.0)) for each in classes)
    taken = tuple(WorkReduction(pruned) for _ in classes)
    assigner.apply(WorkPlan(1, reductions=((0, taken),)), Costs(classes, (curves,) * RANKS, (1,) * RANKS), policy)
    return assigner


def test_a_gated_network_leaves_out_whole_hidden_units(tp):
    model = Gated(tp)
    assigner = cut(model, tp, PAIRED)
    kept = model.down.partition.kept.ids
    pruned = model.down.partition.pruned.ids.tolist()
    assert len(pruned) == 8 and len(kept) == UNITS - 8
    x = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(1), requires_grad=True)
    y, others = x.detach().clone().requires_grad_(), [p.detach().clone().requires_grad_() for p in model.parameters()]
    model(x).square().sum().backward()
    gate, gate_bias, up, up_bias, down, down_bias = others
    hidden = F.silu(y @ gate[kept].t() + gate_bias[kept]) * (y @ up[kept].t() + up_bias[kept])
    (hidden @ down[:, kept].t() + down_bias).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    for parameter, other in zip(model.parameters(), others, strict=True):
        torch.testing.assert_close(parameter.grad, other.grad)
    parts = {id(p): (dim, ids.tolist()) for p, dim, ids in assigner.pruned_parts()}
    for parameter in (model.gate.weight, model.gate.bias, model.up.weight, model.up.bias):
        assert parts[id(parameter)] == (0, pruned)
    assert parts[id(model.down.weight)] == (1, pruned)


def test_a_fused_gate_leaves_out_both_rows_of_a_unit(tp):
    model = Fused(tp)
    cut(model, tp, PAIRED)
    kept = model.down.partition.kept.ids
    x = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(1))
    weight, bias = model.both.weight.unflatten(0, (-1, 2)), model.both.bias.unflatten(0, (-1, 2))
    gate, up = (x @ weight[kept, part].t() + bias[kept, part] for part in (0, 1))
    torch.testing.assert_close(model(x), (F.silu(gate) * up) @ model.down.weight[:, kept].t() + model.down.bias)
