"""One rank's part in who owns what: answers to proposals, prices, the probe of an idle rank; and what is refused."""

from dataclasses import replace

import pytest
import torch
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.devices.slowdown import Slowdown
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve, Line, LinearClass, Link, Moving
from heterotp_trainer.plans.ownership import Proposal
from heterotp_trainer.plans.unit_plan import Plan
from heterotp_trainer.rebalancing.speed_probe import CALLS, PaceProbe
from heterotp_trainer.resharding import memory
from heterotp_trainer.resharding.resharder import PROBE_EVERY, Owner, _corrected
from heterotp_trainer.resharding.unit_mover import CHUNK_BYTES
from heterotp_trainer.session import refuse_dropout
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.training.optimizer import EagerAdamW
from torch import nn

WIDTH, UNITS, RANKS = 8, 48, 3
EVEN = Plan.even(RANKS, RANKS, UNITS)
SKEWED = Plan.from_counts([1, 1, 1], [20, 20, 8])


def context(rank=0, plan=EVEN):
    return TPContext(None, rank, RANKS, Device(torch.device("cpu"), "cpu"), NullClock(), plan)


def owner_of(rank=0, plan=EVEN):
    tp = context(rank, plan)
    model = ParallelMLP(tp, WIDTH, UNITS, name="m", seed=1)
    optimizer = EagerAdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 2, WIDTH)).sum().backward()
    optimizer.step()
    return Owner(nn.ModuleDict({"mlp": model}), tp, optimizer, lambda parameter: [])


def proposal(number, shards=SKEWED):
    return Proposal(number, shards, (1.0,) * RANKS, (), False, 1.0, "because")


@pytest.mark.parametrize("plan", [EVEN, Plan.from_counts([3, 0, 0], [0, 24, 24])], ids=["some", "none"])
def test_a_unit_weighs_what_belongs_to_it_also_where_a_rank_owns_none(plan):
    # a row and a column of the weights and a bias, each with two moments, fp32
    assert owner_of(plan=plan).prices() == Moving(heads_bytes=0, ffn_bytes=(2 * WIDTH + 1) * 3 * 4)


def test_memory_is_reserved_once_for_each_proposal_and_given_back(monkeypatch):
    asked = []

    def reserve(need, device):
        asked.append(need.lasting)
        return [torch.zeros(1)] if len(asked) < 3 else None

    monkeypatch.setattr(memory, "reserve", reserve)
    owner = owner_of()
    owner.answer(None)
    assert (owner.ready, asked) == (0, [])
    for _ in range(2):
        owner.answer(proposal(4))
    assert (owner.ready, len(asked)) == (4, 1)
    owner.answer(proposal(6, Plan.from_counts([1, 1, 1], [40, 4, 4])))
    assert owner.ready == 6 and asked[1] > asked[0]  # it gains more units
    owner.answer(proposal(9))
    assert owner.ready == -9
    owner.answer(None)
    assert owner.ready == 0 and owner.mover._reserved is None


def test_who_loses_units_needs_no_more_than_a_shard_and_messages(monkeypatch):
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
    return Costs((linears,), ((curve,),) * RANKS, (1,) * RANKS, Link(piece=Line(0.0, slope)), moving=Moving(0.0, 10.0))


def test_a_move_is_as_dear_as_the_last_one_was():
    # rank 2 sends 8 units of 10 bytes: 0.08 s
    assert _corrected(costs(), EVEN, SKEWED, 0.16).moving.correction == pytest.approx(2.0)
    again = replace(costs(), moving=Moving(0.0, 10.0, 2.0))
    assert _corrected(again, EVEN, SKEWED, 0.04).moving.correction == pytest.approx(0.5)  # the last one alone counts
    assert _corrected(costs(), EVEN, SKEWED, 1e9).moving.correction == 10
    assert _corrected(costs(), EVEN, EVEN, 5.0).moving.correction == 1


# -- the probe ------------------------------------------------------------------------------------------------


def test_only_a_rank_with_hardly_any_work_is_probed(monkeypatch):
    taken = []
    monkeypatch.setattr(PaceProbe, "take", lambda self, costs: taken.append(1) or 2.5)
    busy, idle = owner_of(), owner_of(rank=2, plan=Plan.from_counts([1, 1, 1], [24, 23, 1]))
    for _ in range(2 * PROBE_EVERY):
        busy.probe(costs())
    assert (busy.probed, taken) == (0.0, [])
    for _ in range(2 * PROBE_EVERY):
        idle.probe(costs(idle.tp.plan))
    assert idle.probed == 2.5 and len(taken) == 3  # at once, then now and then
    idle.probe(costs(EVEN))
    assert idle.probed == 0.0


def test_a_probe_sees_an_injected_slow_down_and_leaves_its_count_alone():
    tp, slept = context(), []
    clock = iter(range(1000))
    tp.device.slowdown = Slowdown(4.0, "sleep", now=lambda: next(clock), sleep=slept.append)
    tp.device.slowdown.own_seconds = 7.0
    assert PaceProbe(tp).take(costs()) > 0
    assert len(slept) == 3 * (1 + CALLS) and tp.device.slowdown.own_seconds == 7.0  # three products each


def test_a_probe_of_what_was_never_measured_says_nothing():
    mute = replace(costs(), curves=((Curve((0.0, 1.0), (0.0, 0.0), 16),),) * RANKS)
    assert PaceProbe(context()).take(mute) == 0.0


# -- dropout --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layer", [nn.Dropout(0.1), nn.Dropout1d(0.5), nn.AlphaDropout(0.2)], ids=lambda m: type(m).__name__
)
def test_dropout_is_refused_by_name(layer):
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(layer))
    with pytest.raises(ValueError, match=r"^model: 1\.0: \w+\(p=0\.\d\): ranks draw unlike masks"):
        refuse_dropout(model, context())


def test_dropout_that_drops_nothing_or_on_a_single_rank_is_allowed():
    alone = TPContext(None, 0, 1, Device(torch.device("cpu"), "cpu"), NullClock(), Plan.even(1, 1, 4))
    for layer, tp in ((nn.Dropout(0.0), context()), (nn.Dropout(0.5), alone)):
        assert refuse_dropout(nn.Sequential(layer), tp) is None
