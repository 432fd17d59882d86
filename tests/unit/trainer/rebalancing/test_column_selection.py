"""Which columns are left out: importance, the order of blocks, draws, and how layers share a class's columns."""

import pytest
import torch
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Zero
from heterotp_trainer.balancing.layer_columns import columns_by_layer
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.plans.work_reduction import WorkReduction
from heterotp_trainer.rebalancing.column_assigner import ColumnAssigner
from heterotp_trainer.rebalancing.column_selection import Importance, block_order, unimportant_shares
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec
from torch import nn

WIDTH, UNITS = 8, 16


def context(ranks=1):
    """Return rank 0's view; nothing here enters a collective."""
    device = Device(torch.device("cpu"), "cpu")
    return TPContext(None, 0, ranks, device, NullClock(), UnitPlan.even(ranks, 1, UNITS * ranks))


def linear(columns=4):
    return ColumnParallelLinear(context(), ShardSpec("ffn", 0, 1, UNITS), columns, name="fc", seed=1)


def move(module, *by):
    """Move the weight's columns by so much, rows up and down in turn."""
    signs = torch.ones(len(module.weight), 1)
    signs[::2] = -1
    module.weight.data += signs * torch.tensor(by)


# -- importance -------------------------------------------------------------------------------------------


def test_delta_is_the_mean_movement_of_a_columns_weights_since_the_last_refresh():
    module = linear()
    kept = Importance(module)
    for by, delta in (([0.0, 0.5, 1.0, 2.0], [0, 0.5, 1, 2]), ([1.0, 0.0, 0.0, 0.25], [1, 0, 0, 0.25])):
        move(module, *by)
        kept.step(None)
        kept.refresh()
        torch.testing.assert_close(kept.delta, torch.tensor(delta), check_dtype=False)


def test_there_is_no_delta_before_the_first_refresh():
    kept = Importance(linear())
    kept.step(None)
    assert kept.delta is None


def test_a_refresh_without_steps_does_nothing():
    module = linear()
    kept = Importance(module)
    kept.refresh()
    assert kept.delta is None
    move(module, 1.0, 2.0, 3.0, 4.0)
    kept.step(None)
    kept.refresh()
    before = kept.delta.clone()
    move(module, 9.0, 9.0, 9.0, 9.0)
    kept.refresh()
    assert torch.equal(kept.delta, before)


def test_columns_pruned_in_most_steps_keep_their_delta():
    module = linear()
    kept = Importance(module)
    move(module, 4.0, 3.0, 2.0, 1.0)
    kept.step(None)
    kept.refresh()
    for pruned in ([0, 1], [0, 1], [0], []):  # of four steps: three, two, none, none
        kept.step(torch.tensor(pruned, dtype=torch.int64))
    move(module, 0.25, 0.5, 0.75, 1.0)
    kept.refresh()
    torch.testing.assert_close(kept.delta, torch.tensor([4.0, 0.5, 0.75, 1.0]))
    move(module, 0.5, 0.5, 0.5, 0.5)
    kept.step(None)
    kept.refresh()  # counted anew
    torch.testing.assert_close(kept.delta, torch.full((4,), 0.5))


def test_columns_pruned_before_the_first_delta_do_not_count_as_unimportant():
    module = linear()
    kept = Importance(module)
    kept.step(torch.tensor([0, 2]))
    move(module, 0.0, 1.0, 0.0, 3.0)
    kept.refresh()
    torch.testing.assert_close(kept.delta, torch.tensor([2.0, 1.0, 2.0, 3.0]))


# -- order ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delta", "grain", "order"),
    [
        ([3, 1, 2, 0], 1, [3, 1, 2, 0]),
        ([3, 1, 0, 0, 9, 9], 2, [1, 0, 2]),
        ([5, 5, 4, 4, 0], 2, [1, 0]),
        ([1, 1, 1], 1, [0, 1, 2]),
    ],
    ids=["columns", "blocks-by-their-mean", "no-part-of-a-block", "ties-by-number"],
)
def test_the_blocks_that_moved_least_are_chosen_first(delta, grain, order):
    assert block_order(torch.tensor(delta).float(), len(delta), grain, (1, "fc", 0)).tolist() == order


def test_before_the_first_delta_blocks_are_drawn():
    def drawn(*seed):
        return block_order(None, 130, 2, seed).tolist()

    assert sorted(drawn(1, "fc", 0)) == list(range(65))
    assert drawn(1, "fc", 0) == drawn(1, "fc", 0)
    others = [drawn(2, "fc", 0), drawn(1, "proj", 0), drawn(1, "fc", 1)]
    assert all(other != drawn(1, "fc", 0) for other in others)


# -- layers -----------------------------------------------------------------------------------------------


def counts_by_layer(pruned, deltas, zero, iterations):
    """Return what each layer of 10 columns prunes, by the importance measured on this rank."""
    return columns_by_layer(pruned, unimportant_shares(deltas, zero, iterations), zero, 10, 10, 1)


FLAT, STEEP = torch.full((10,), 0.004), torch.tensor([0.001] * 2 + [0.1] * 8)


@pytest.mark.parametrize(
    ("fields", "iterations", "counts"),
    [
        ({"selection": "Pri"}, 9, [4, 4]),
        ({"selection": "PriDiffR"}, 9, [6, 2]),  # the median is 0.004: 10 and 2 of 10 below, alpha gamma 0.32
        ({"selection": "PriDiffR", "theta_quantile": 1.0}, 9, [4, 4]),
        ({"selection": "PriDiffE", "theta_mode": "absolute"}, 4, [6, 2]),
        ({"selection": "PriDiffR", "theta_mode": "absolute"}, 3, [4, 4]),
        ({"selection": "PriDiffR", "theta_mode": "absolute", "theta_per_iteration": 0.01}, 10, [4, 4]),
    ],
    ids=["not-PriDiff", "quantile", "quantile-1", "theta-of-4-iterations", "of-3-below-all", "above-all"],
)
def test_pridiff_prunes_more_where_more_is_unimportant(fields, iterations, counts):
    assert counts_by_layer(4, [FLAT, STEEP], Zero(**fields), iterations) == counts


def test_pridiff_waits_until_every_layer_has_a_delta():
    assert counts_by_layer(4, [FLAT, None], Zero(selection="PriDiffR"), 9) == [4, 4]
    assert counts_by_layer(0, [FLAT, STEEP], Zero(selection="PriDiffR"), 9) == [0, 0]


# -- the linears of a model -------------------------------------------------------------------------------


class Model:
    """A feed-forward network or two under a plan that prunes half of rank 0."""

    def __init__(self, layers=1, **zero):
        tp = context(2)
        self.mlps = nn.ModuleList(ParallelMLP(tp, WIDTH, UNITS * 2, name=f"mlp{i}", seed=i) for i in range(layers))
        self.assigner = ColumnAssigner(self.mlps, tp)
        self.policy = BalancingSettings(strategy="ZERO", zero=Zero(grain=1, **zero))
        self.assigner.follow(self.policy)

    def apply(self, decision_id=1, share=0.5):
        classes = self.assigner.classes()
        taken = tuple(WorkReduction(int(share * each.columns[0])) for each in classes)
        costs = Costs(classes, ((Curve((0.0, 1.0), (0.0, 0.0)),) * len(classes),) * 2, (1, 1))
        self.assigner.apply(WorkPlan(decision_id, reductions=((0, taken),)), costs, self.policy)

    def epoch(self):
        """Move what is computed for three steps, the later columns more, as an optimizer would; then refresh."""
        for _ in range(3):
            moves = {linear: torch.ones_like(linear.weight).cumsum(1) for linear in self.assigner.linears}
            weights = {linear.weight: moved for linear, moved in moves.items()}
            for parameter, dim, ids in self.assigner.pruned_parts():
                if parameter in weights:
                    weights[parameter].index_fill_(dim, ids, 0.0)
            for linear, moved in moves.items():
                linear.weight.data += moved
            self.assigner.count_step()
        self.assigner.refresh()
        self.apply()

    def pruned(self):
        """Return what is left out of each fc1, then of each fc2."""
        return [sorted(ids.tolist()) for parameter, _, ids in self.assigner.pruned_parts() if parameter.dim() == 2]


def test_pruned_units_prune_their_bias_too():
    model = Model(selection="Pri", paired_units=True)
    model.apply()
    fc1 = model.assigner.linears[0]
    parts = {id(parameter): (dim, ids.tolist()) for parameter, dim, ids in model.assigner.pruned_parts()}
    assert parts[id(fc1.bias)] == parts[id(fc1.weight)] == (0, model.pruned()[1])


@pytest.mark.parametrize("paired", [False, True], ids=["columns", "paired-units"])
def test_columns_that_did_not_move_because_they_were_pruned_return(paired):
    model = Model(selection="Pri", paired_units=paired)
    model.apply()
    drawn = model.pruned()[1]
    model.epoch()
    found = model.pruned()[1]
    least = [column for column in range(UNITS) if column not in drawn][:2]
    assert set(least) <= set(found) and len(found) == len(drawn) == UNITS // 2
    model.epoch()
    assert set(least) <= set(model.pruned()[1])  # who now stood still keeps what was measured


def test_the_period_of_an_absolute_theta_is_that_of_the_refreshes():
    model = Model(layers=2, selection="PriDiffR", theta_mode="absolute", alpha=0.5)
    for _ in range(3):  # in all 0.0015: above theta for one iteration, below that for three
        for part in model.assigner.linears:
            part.weight.data += 0.0005 if "mlp0" in part.name else 1.0
        model.assigner.count_step()
    model.assigner.refresh()
    counts = []
    for decision_id, steps in ((1, 0), (2, 1), (3, 5)):  # plans change between the refreshes
        for _ in range(steps):
            model.assigner.count_step()
        model.apply(decision_id)
        counts.append([len(ids) for ids in model.pruned()])
    assert counts == [[6, 2, 13, 3]] * 3
