"""One rank's balancer, boundary by boundary: what it measures, remembers, corrects and sets, with no gang around it."""

import json
from dataclasses import asdict, replace

import pytest
import torch
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Semi, Zero
from heterotp_trainer.balancing.prediction import kept_seconds
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import PHASES, NullClock
from heterotp_trainer.plans.alternation import Alternation
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.rebalancing.balancer import Balancer
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from support.balancer_world import LINK, NOTHING, RANKS, ROWS, UNITS, WIDTH, World, migrating, pruning

# -- cost calibration -----------------------------------------------------------------------------------------


def test_the_first_boundary_that_needs_costs_measures_them_and_no_other(monkeypatch, tmp_path):
    world = World(monkeypatch, tmp_path)
    world.follow(NOTHING)
    assert not world.calibrations and not (tmp_path / "cost_calibration.json").exists()
    world.follow(pruning())
    tp, classes = world.calibrations[0]
    assert tp is world.balancer.tp
    assert [(each.parallel, each.rows, each.calls) for each in classes] == [("column", ROWS, 1), ("row", ROWS, 1)]
    assert json.loads((tmp_path / "cost_calibration.json").read_text()) == json.loads(
        json.dumps(asdict(world.balancer.costs))
    )
    for policy in (pruning(0.25), migrating(), NOTHING, pruning()):
        world.follow(policy)
    assert len(world.calibrations) == 1


@pytest.mark.parametrize(
    ("policy", "needed"),
    [
        ({"strategy": "None"}, False),
        ({"strategy": "RESHARD"}, True),
        ({"strategy": "AUTO"}, True),
        ({"strategy": "AUTO", "max_pruned_share": 0.1}, True),
        ({"strategy": "ZERO"}, True),
        ({"strategy": "MIG"}, True),
        ({"strategy": "SEMI", "semi": Semi()}, True),
    ],
    ids=str,
)
def test_only_policies_that_take_or_move_work_need_costs(world, policy, needed):
    world.follow(BalancingSettings(**policy))
    assert bool(world.calibrations) == needed


def test_there_are_no_costs_to_measure_before_the_layers_worked(world):
    world.balancer.apply(pruning())
    world.balancer.boundary(None, 0, 0)
    assert not world.calibrations
    world.boundary()
    assert world.calibrations


def test_a_full_disk_loses_only_the_calibration_file(monkeypatch, tmp_path):
    (tmp_path / "cost_calibration.json").symlink_to("/dev/full")
    world = World(monkeypatch, tmp_path)
    world.follow(pruning())
    assert world.balancer.costs.link == LINK and world.balancer.plan.reductions


def test_a_boundary_with_extra_work_is_left_out_of_statistics(world):
    def follow(policy):
        world.balancer.apply(policy)
        return world.boundary(1.0)

    assert not follow(NOTHING)
    lossless = BalancingSettings(strategy="MIG", window=1)
    assert follow(lossless)  # costs are calibrated, and nothing moves
    assert not world.balancer.plan.reductions
    assert not world.boundary(1.0)
    assert follow(pruning())  # columns move
    assert not world.boundary(1.0)
    assert not world.boundary(1.0, epoch=1)  # importance is measured: control time
    assert not follow(pruning(0.5, window=2))  # another plan that takes the same columns
    assert follow(NOTHING)


# -- what is remembered -----------------------------------------------------------------------------------


def test_an_unmeasured_report_is_not_added_to_the_history(world):
    world.follow(NOTHING)
    world.boundary(3.0, measured=0)
    assert world.balancer.history.median() is None
    world.boundary(2.0)
    world.boundary(5.0, measured=0)
    assert world.balancer.history.median().wait.tolist() == [1.5] * RANKS


def test_another_window_keeps_the_history(world):
    world.follow(NOTHING)
    for seconds in (1.0, 2.0):
        world.boundary(seconds)
    assert world.balancer.history.median().wait.tolist() == [1.5] * RANKS
    world.balancer.apply(BalancingSettings(strategy="None", window=2))
    assert world.balancer.history.median().wait.tolist() == [1.0] * RANKS
    world.balancer.apply(BalancingSettings(strategy="None", window=3))
    assert world.balancer.history.median() is None
    world.boundary(9.0)
    assert world.balancer.history.median().wait.tolist() == [1.5] * RANKS


def test_migration_is_known_from_the_plan_of_the_report(world):
    """Reports come one boundary late: the first after a change is still of the plan before."""

    def seen(decision_id):
        world.boundary(2.0, decision_id=decision_id)
        return world.balancer.history.median().migrating

    still = world.follow(NOTHING)
    unit_move = world.follow(migrating())
    assert [seen(still), seen(unit_move), seen(unit_move)] == [False, True, True]
    after = world.follow(NOTHING)
    assert [seen(unit_move), seen(after)] == [True, False]


# -- importance and columns -------------------------------------------------------------------------------


def renewed(world, epochs):
    """Do a boundary per epoch number; return at which of them the columns were chosen anew by importance."""
    found, assigner = [], world.balancer.assigner
    apply = assigner.apply
    for number, epoch in enumerate(epochs, 1):
        assigner.apply = lambda *given, number=number: (found.append(number), apply(*given))
        world.boundary(1.0, epoch=epoch)
    assigner.apply = apply
    return found


def pruned_at(world, epochs):
    """Do a boundary per epoch number; return the columns of fc2 that are pruned after each of them."""
    found = []
    for epoch in epochs:
        world.boundary(1.0, epoch=epoch)
        found.append(tuple(world.model.fc2.partition.pruned.ids.tolist()))
    return found


@pytest.mark.parametrize(("redraw", "different"), [("iteration", 6), ("epoch", 3)])
def test_random_columns_are_drawn_again_while_the_plan_stays_the_same(world, redraw, different):
    world.follow(pruning(selection="Rd", redraw=redraw))
    decision = world.balancer.plan.decision_id
    drawn = pruned_at(world, [0, 0, 1, 1, 2, 2])
    assert len(set(drawn)) == different and len({len(each) for each in drawn}) == 1
    assert world.balancer.plan.decision_id == decision


def test_a_resumed_run_draws_the_same_columns(monkeypatch):
    policy = pruning(selection="Rd")
    worlds = [World(monkeypatch), World(monkeypatch)]
    worlds[0].follow(policy)
    pruned_at(worlds[0], [0, 0])
    state = json.loads(json.dumps(worlds[0].balancer.state()))
    worlds[1].train()
    worlds[1].balancer.prepare(state, policy)
    worlds[1].balancer.resume()
    worlds[1].iteration = worlds[0].iteration
    partitions = [world.model.fc2.partition.pruned.ids.tolist() for world in worlds]
    assert partitions[0] == partitions[1]
    assert pruned_at(worlds[0], [0, 1]) == pruned_at(worlds[1], [0, 1])


def test_columns_by_importance_are_not_drawn_again(world):
    world.follow(pruning(selection="Pri", statistics_every=1000))
    for linear in (world.model.fc1, world.model.fc2):
        linear.weight.data += torch.rand_like(linear.weight)
    world.balancer.assigner.count_step()
    world.balancer.assigner.refresh()
    assert len(set(pruned_at(world, [0, 0, 0]))) == 1


@pytest.mark.parametrize(
    ("every", "expected"),
    [(None, [3, 5, 8]), (1, [1, 2, 3, 4, 5, 6, 7, 8]), (3, [1, 4, 7]), (4, [2, 6])],
    ids=["once-an-epoch", "always", "every-three", "every-four"],
)
def test_importance_is_measured_once_an_epoch_or_every_given_iterations(world, every, expected):
    world.follow(NOTHING)
    world.follow(pruning(statistics_every=every))
    assert world.iteration == 2
    assert renewed(world, [0, 0, 1, 1, 2, 2, 2, 3]) == expected


@pytest.mark.parametrize("policy", [pruning(selection="Rd", statistics_every=1), migrating()], ids=["random", "MIG"])
def test_columns_are_not_chosen_again_where_importance_is_unused(world, policy):
    world.follow(policy)
    assert renewed(world, [0, 1, 2]) == []


def test_a_new_epoch_prunes_the_columns_that_moved_least(world):
    world.balancer.apply(pruning())
    world.model.fc1.weight.data += torch.tensor([3.0, 0.0, 6.0, 1.0, 7.0, 2.0, 5.0, 4.0])  # a column each
    world.balancer.optimizer_step(world.optimizer)
    world.boundary(1.0)
    drawn = world.model.fc1.partition
    world.boundary(1.0, epoch=1)
    assert world.model.fc1.partition is not drawn
    assert world.model.fc1.partition.pruned.ids.tolist() == [0, 1, 3, 5]


@pytest.mark.parametrize("masked", [True, False])
def test_the_optimizer_skips_pruned_columns_if_the_policy_masks_them(world, masked):
    world.follow(pruning(mask_pruned_update=masked))
    pruned = world.model.fc1.partition.pruned
    before = world.model.fc1.weight.detach().clone()
    for parameter in world.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    world.balancer.optimizer_step(world.optimizer)
    moved = (world.model.fc1.weight.detach() != before).all(0)
    assert moved[pruned.rest.ids].all()
    assert moved[pruned.ids].tolist() == [not masked] * len(pruned)


@pytest.mark.parametrize("policy", [NOTHING, pruning(), migrating()], ids=lambda policy: policy.strategy)
def test_every_boundary_resets_the_counts_of_calls(world, policy):
    world.balancer.apply(policy)
    for seconds in (None, 1.0, 1.0):
        world.boundary(seconds)
        assert [linear.calls for linear in world.balancer.assigner.linears] == [0, 0]


def test_the_plain_layers_return_when_the_policy_ends(world):
    world.follow(pruning())
    assert len(world.model.fc1.partition.kept) == WIDTH // 2
    world.follow(NOTHING)
    assert world.model.fc1.partition is None and world.model.fc2.partition is None


# -- full-work times --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "rank", "full_work_factor"),
    [
        (pruning(0.5), 0, 2.0),
        (pruning(0.5), 1, 1.0),
        (migrating(0.5), 0, 2.0),
        (migrating(0.5), 1, 0.8),  # a half, by two receivers
        (pruning(1.0, gamma_max=1.0), 0, 1.0),  # nothing was executed: there is no factor
        (NOTHING, 0, 1.0),
    ],
    ids=["pruned", "not-pruned", "gives-away", "receives", "does-nothing", "no-plan"],
)
def test_full_work_factor_is_full_over_executed_time(monkeypatch, policy, rank, full_work_factor):
    world = World(monkeypatch, rank=rank)
    world.follow(policy)
    world.boundary()
    assert world.balancer.full_work_factor == pytest.approx(full_work_factor)


def test_under_its_plan_a_straggler_is_as_fast_as_the_others_and_stays_a_straggler(monkeypatch):
    chis, worlds = (1.0, 4.0, 1.0), [World(monkeypatch, rank=rank) for rank in range(RANKS)]
    policy = BalancingSettings(strategy="ZERO", window=2, zero=Zero(grain=1, selection="Rd"))
    plans, executed = [], []
    for world in worlds:
        world.follow(policy)
    for iteration in range(14):
        reports = []
        for chi, world in zip(chis, worlds, strict=True):
            world.train()
            costs, plan, rank = world.balancer.costs, world.balancer.plan, world.balancer.tp.rank
            matmul = chi * float(kept_seconds(costs, plan.reductions_by_rank)[rank]) if costs.classes else chi
            spent = dict.fromkeys(PHASES, 0.0) | {"matmul": matmul}
            full = matmul * world.balancer.full_work_factor
            reports.append(Report(iteration, full=full, decision_id=plan.decision_id, seconds=spent))
        for world in worlds:
            world.balancer.boundary(reports, iteration, 0)
        executed.append([report.seconds["matmul"] for report in reports])
        plans.append(worlds[0].balancer.plan)
        assert len({world.balancer.plan.hash for world in worlds}) == 1
    assert executed[-1] == pytest.approx([1.0, 1.0, 1.0], abs=0.1)
    assert len({plan.hash for plan in plans[-8:]}) == 1 and plans[-1].stragglers == (1,)


def test_a_fixed_ratio_waits_for_calibrated_costs(world):
    world.balancer.apply(pruning(0.5))
    world.balancer.boundary(None, 0, 0)  # no linear has been called yet
    assert not world.balancer.plan.reductions
    world.boundary()
    assert world.balancer.plan.reductions


def test_the_plan_of_a_single_rank_has_a_reason():
    tp = TPContext(None, 0, 1, Device(torch.device("cpu"), "cpu"), NullClock(), UnitPlan.even(1, 1, UNITS))
    balancer = Balancer(ParallelMLP(tp, WIDTH, UNITS, name="m", seed=1), tp)
    balancer.apply(BalancingSettings(strategy="ZERO"))
    assert (balancer.plan.reason, balancer.plan.decision_id) == ("ZERO: a single rank does not wait for others", 1)


def test_a_checkpoint_continues_the_times_of_alternating_ranks(monkeypatch):
    policy = BalancingSettings(strategy="ZERO", window=1)
    record, other = (Alternation(0, False, 3, 90),), (Alternation(1, True, 1, 95, 99),)
    before, after = World(monkeypatch).balancer, World(monkeypatch).balancer
    before.apply(policy)
    before.history.count = 100
    ownership = replace(before.plan.ownership, alternations=other)
    before.plan = replace(before.plan, settings=policy, alternations=record, ownership=ownership)
    after.prepare(json.loads(json.dumps(before.state())), policy)
    assert after.history.count == 100
    assert (after.plan.alternations, after.plan.ownership.alternations) == (record, other)
    assert after.plan.ownership.unit_plan == before.plan.ownership.unit_plan
