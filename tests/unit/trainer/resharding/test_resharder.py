"""One rank's part in changes of the unit plan: answers to proposals, and the price of a move."""

from dataclasses import replace

import pytest
import torch
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve, Line, LinearClass, Link, UnitMoveCost
from heterotp_trainer.plans.ownership import MoveCase, MoveCause, Proposal
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.resharding import memory
from heterotp_trainer.resharding.resharder import Resharder, _corrected
from heterotp_trainer.resharding.sharded_state import layers_of
from heterotp_trainer.resharding.unit_mover import CHUNK_BYTES
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.tensor_parallel.unit_spec import sharded_parameter, vocabulary
from heterotp_trainer.training.optimizer import EagerAdamW
from torch import nn

WIDTH, UNITS, RANKS = 8, 48, 3
EVEN = UnitPlan.even(RANKS, RANKS, UNITS)
SKEWED = UnitPlan.from_counts([1, 1, 1], [20, 20, 8])


def context(rank=0, plan=EVEN):
    return TPContext(None, rank, RANKS, Device(torch.device("cpu"), "cpu"), NullClock(), plan)


def owner_of(rank=0, plan=EVEN):
    tp = context(rank, plan)
    model = ParallelMLP(tp, WIDTH, UNITS, name="m", seed=1)
    optimizer = EagerAdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 2, WIDTH)).sum().backward()
    optimizer.step()
    return Resharder(nn.ModuleDict({"mlp": model}), tp, optimizer, lambda parameter: [])


def proposal(decision_id, unit_plan=SKEWED):
    case = MoveCase(MoveCause.SPEEDS, (2,), 2.5, (), 1.0, (), (("ffn", 8, UNITS),), 80.0, 0.08, 0.1, 1.0, 0.8)
    return Proposal(decision_id, unit_plan, (1.0,) * RANKS, (), False, case)


@pytest.mark.parametrize("plan", [EVEN, UnitPlan.from_counts([3, 0, 0], [0, 24, 24])], ids=["some", "none"])
def test_bytes_of_a_unit_are_known_without_owned_units(plan):
    # a row and a column of the weights and a bias, each with two moments, fp32
    assert owner_of(plan=plan).prices() == UnitMoveCost(heads_bytes=0, ffn_bytes=(2 * WIDTH + 1) * 3 * 4)


@pytest.mark.parametrize("tied", [False, True], ids=["two weights", "one tied weight"])
def test_a_row_of_the_vocabulary_moves_once_for_each_weight(tied):
    tp, spec = context(plan=UnitPlan.from_counts([1, 1, 1], [16, 16, 16], [0, 9, 1])), vocabulary(10)
    head = ColumnParallelLinear(tp, spec, WIDTH, name="lm_head", seed=1, bias=False)
    embed, block = nn.Module(), nn.Module()
    embed.weight = head.weight if tied else sharded_parameter("embed", (10, WIDTH), spec, (), 0.02, 1)
    block.mlp = ParallelMLP(tp, WIDTH, UNITS, name="m", seed=1)
    model = nn.ModuleDict({"embed": embed, "block": block, "lm_head": head})
    optimizer = EagerAdamW(model.parameters(), lr=0.1)
    prices = Resharder(model, tp, optimizer, lambda parameter: []).prices()  # before any step: no moments
    assert prices.vocab_bytes == (1 if tied else 2) * WIDTH * 4
    layers = layers_of(dict(model.named_parameters()))
    assert [(each.family, len(each.parameters)) for each in layers] == (
        [("vocab", 1), ("ffn", 3)] if tied else [("vocab", 1), ("ffn", 3), ("vocab", 1)]
    )
    nested = nn.ModuleDict({"model": nn.ModuleDict({"embed": embed, "lm_head": head})})
    assert len(layers_of(dict(nested.named_parameters()))) == len(layers) - 1  # apart under any name


def test_memory_is_reserved_once_for_each_proposal_and_given_back(monkeypatch):
    asked = []

    def reserve(need, device):
        asked.append(need.lasting)
        return [torch.zeros(1)] if len(asked) < 3 else None

    monkeypatch.setattr(memory, "reserve", reserve)
    resharder = owner_of()
    resharder.answer(None)
    assert (resharder.ready, asked) == (0, [])
    for _ in range(2):
        resharder.answer(proposal(4))
    assert (resharder.ready, len(asked)) == (4, 1)
    resharder.answer(proposal(6, UnitPlan.from_counts([1, 1, 1], [40, 4, 4])))
    assert resharder.ready == 6 and asked[1] > asked[0]  # it gains more units
    resharder.answer(proposal(9))
    assert resharder.ready == -9
    resharder.answer(None)
    assert resharder.ready == 0 and resharder.unit_mover._reserved is None


def test_a_rank_that_loses_units_reserves_a_shard_and_messages_only(monkeypatch):
    asked = []
    monkeypatch.setattr(memory, "reserve", lambda need, device: asked.append(need))
    weights = (2 * WIDTH + 1) * 4
    unit = 3 * weights  # with two moments, and a gradient in the next iteration
    owner_of(rank=2).answer(proposal(1))
    owner_of(rank=0).answer(proposal(1))
    assert [need.lasting for need in asked] == [0, 4 * (unit + weights)]
    assert [need.passing - 2 * CHUNK_BYTES for need in asked] == [8 * unit, 20 * unit]


# -- prices ---------------------------------------------------------------------------------------------------


def costs(plan=EVEN, slope=1e-3):
    linears = LinearClass("fc", "column", (WIDTH,) * RANKS, (16,) * RANKS, 4, 1, "ffn", 1).owned_by(plan)
    curve = Curve((0.0, 1.0, float(WIDTH)), (0.0, 1e-4, 1e-3), 16)
    return Costs(
        (linears,), ((curve,),) * RANKS, (1,) * RANKS, Link(piece=Line(0.0, slope)), unit_move=UnitMoveCost(0.0, 10.0)
    )


def test_the_price_of_a_move_is_that_of_the_last_move():
    # rank 2 sends 8 units of 10 bytes: 0.08 s
    assert _corrected(costs(), EVEN, SKEWED, 0.16).unit_move.correction == pytest.approx(2.0)
    again = replace(costs(), unit_move=UnitMoveCost(0.0, 10.0, correction=2.0))
    assert _corrected(again, EVEN, SKEWED, 0.04).unit_move.correction == pytest.approx(0.5)  # the last one alone counts
    assert _corrected(costs(), EVEN, SKEWED, 1e9).unit_move.correction == 10
    assert _corrected(costs(), EVEN, EVEN, 5.0).unit_move.correction == 1
