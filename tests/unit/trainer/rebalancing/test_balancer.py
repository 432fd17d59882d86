"""One rank's balancer, boundary by boundary: what it measures, remembers, corrects and sets, with no gang around it."""

import json
from dataclasses import asdict, replace

import pytest
import torch
from heterotp_api.policy import BalancingSettings, Mig, Semi, Zero
from heterotp_trainer.balancing.prediction import kept_seconds, transfer_seconds
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import PHASES, NullClock
from heterotp_trainer.plans.alternation import Alternation
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve, Line, Link
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.rebalancing import balancer as balancers
from heterotp_trainer.rebalancing.balancer import Balancer
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.training.optimizer import EagerAdamW

RANKS, WIDTH, UNITS, ROWS = 3, 8, 48, 5
LINK = Link(Line(0.0, 2e-4), Line(0.0, 3e-4), Line(1e-2, 4e-4))
NOTHING = BalancingSettings(strategy="None", window=1)


def pruning(ratio=0.5, window=1, **zero):
    return BalancingSettings(strategy="ZERO", window=window, zero=Zero(fixed_ratio=ratio, ranks=[0], grain=1, **zero))


def migrating(ratio=0.5, window=1):
    return BalancingSettings(strategy="MIG", window=window, mig=Mig(fixed_ratio=ratio, ranks=[0], grain=1))


class World:
    """One rank of three, the first by default: its balancer, its calibrated costs, and the reports that a test sets."""

    def __init__(self, monkeypatch, workdir=None, rank=0):
        tp = TPContext(
            None, rank, RANKS, Device(torch.device("cpu"), "cpu"), NullClock(), UnitPlan.even(RANKS, RANKS, UNITS)
        )
        self.model = ParallelMLP(tp, WIDTH, UNITS, name="m", seed=1)
        self.balancer = Balancer(self.model, tp, workdir)
        self.optimizer = EagerAdamW(self.model.parameters(), lr=0.1)
        self.iteration = 0
        self.calibrations = []
        monkeypatch.setattr(balancers, "calibrate_costs", self._calibrate)
        # the other ranks would only receive which columns of rank 0 migrate
        monkeypatch.setattr(torch.distributed, "broadcast", lambda tensor, src, group: None)

    def _calibrate(self, tp, classes):
        self.calibrations.append((tp, classes))
        curves = tuple(Curve((0.0, float(each.columns[0])), (0.0, 0.5)) for each in classes)
        return Costs(classes, (curves,) * RANKS, (1,) * RANKS, LINK)

    def train(self):
        """Leave behind what an iteration leaves at the layers."""
        self.iteration += 1
        for linear in (self.model.fc1, self.model.fc2):
            linear.rows, linear.calls = ROWS, 1

    def boundary(self, seconds=None, *, decision_id=None, measured=1, epoch=0):
        """Do an iteration and its boundary, at which reports arrive of one that took so long; None: no reports."""
        self.train()
        reports = None
        if seconds is not None:
            decision_id = self.balancer.plan.decision_id if decision_id is None else decision_id
            spent = dict.fromkeys(PHASES, 0.0) | {"matmul": 0.5, "wait": seconds - 0.5}
            fields = {"measured": measured, "decision_id": decision_id, "full": 1.0, "seconds": spent}
            reports = [Report(self.iteration - 1, **fields)] * RANKS
        return self.balancer.boundary(reports, self.iteration, epoch)

    def follow(self, policy):
        """Take a policy, and do the boundary at which it leads to a plan; return the plan's number."""
        self.balancer.apply(policy)
        self.boundary()
        return self.balancer.plan.decision_id


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


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


# -- the price of transfers -------------------------------------------------------------------------------


def migrates(world, ratio=0.5, window=1):
    """Let columns migrate under a plan with a predicted time; return how long an iteration of a given factor takes."""
    for _ in range(window):
        world.boundary(1.0)
    world.follow(migrating(ratio, window))
    plan, costs = world.balancer.plan, world.balancer.costs
    moved = transfer_seconds(costs, plan.reductions_by_rank, len(plan.receivers), plan.primitive)
    assert plan.predicted_seconds > moved > 0.1
    return lambda factor: plan.predicted_seconds + (factor - 1) * moved


def price(world):
    """Return how many times as dear the link has become, the same for each part of it."""
    now, factors = world.balancer.costs.link, set()
    for name in ("broadcast", "reduce", "piece"):
        factors.add(round(getattr(now, name).slope / getattr(LINK, name).slope, 6))
    factors.add(round(now.piece.fixed / LINK.piece.fixed, 6))
    (factor,) = factors
    return factor


@pytest.mark.parametrize(("factor", "corrected"), [(1.5, 1.5), (0.75, 0.75), (5.0, 2.0), (0.1, 0.5)], ids=str)
def test_the_price_of_transfers_follows_measured_iterations_by_at_most_a_factor_of_2(world, factor, corrected):
    taking = migrates(world)
    assert price(world) == 1.0
    world.boundary(taking(factor))
    assert price(world) == pytest.approx(corrected)


def test_the_price_is_corrected_once_per_plan_by_the_median_of_a_window(world):
    taking = migrates(world, window=3)
    prices = []
    for factor in (1.2, 1.9, 1.4, 2.0, 2.0, 2.0, 2.0):
        world.boundary(taking(factor))
        prices.append(price(world))
    assert prices == pytest.approx([1.0, 1.0, *[1.4] * 5])
    taking = migrates(world, ratio=0.25, window=3)
    prices = []
    for _ in range(5):
        world.boundary(taking(1.5))
        prices.append(price(world))
    assert prices == pytest.approx([1.4, 1.4, *[1.4 * 1.5] * 3])


def test_reports_of_the_plan_before_do_not_touch_the_price(world):
    before = world.follow(NOTHING)
    taking = migrates(world, window=2)
    for _ in range(4):
        world.boundary(taking(2.0), decision_id=before)
    assert price(world) == 1.0
    for _ in range(2):
        world.boundary(taking(1.25))
    assert price(world) == pytest.approx(1.25)


def test_reports_that_were_not_measured_do_not_touch_the_price(world):
    taking = migrates(world, window=2)
    for measured, factor in ((1, 1.25), (0, 2.0), (0, 2.0)):
        world.boundary(taking(factor), measured=measured)
        assert price(world) == 1.0
    world.boundary(taking(1.25))
    assert price(world) == pytest.approx(1.25)


def test_a_plan_that_only_prunes_does_not_change_the_price_of_transfers(world):
    world.boundary(1.0)
    world.follow(pruning())
    for _ in range(3):
        world.boundary(9.0)
    assert price(world) == 1.0


# -- importance and columns -------------------------------------------------------------------------------


def renewed(world, epochs):
    """Do a boundary per epoch number; return at which of them the columns were chosen anew."""
    found = []
    for number, epoch in enumerate(epochs, 1):
        before = world.model.fc1.partition
        world.boundary(1.0, epoch=epoch)
        if world.model.fc1.partition is not before:
            found.append(number)
    return found


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
