"""From a plan to the columns of every linear of one rank: who is in which class, and what each leaves out or gives."""

import pytest
import torch
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Mig, Semi, Zero
from heterotp_trainer.balancing.decide import decide
from heterotp_trainer.balancing.history import History
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.plans.work_reduction import WorkReduction
from heterotp_trainer.rebalancing.column_assigner import ColumnAssigner
from heterotp_trainer.tensor_parallel.attention import ParallelAttention
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from torch import nn

RANKS, WIDTH, UNITS, DEPTH = 2, 16, 24, 3  # units of one rank


class Model:
    """Rank 0 of two with some layers, each of attention and a feed-forward network, and what it does under a policy."""

    def __init__(self, policy, depth=DEPTH, width=WIDTH, units=UNITS, grain=1):
        plan = UnitPlan.even(RANKS, RANKS, RANKS * units)
        tp = TPContext(None, 0, RANKS, Device(torch.device("cpu"), "cpu"), NullClock(), plan)
        self.attention = nn.ModuleList(ParallelAttention(tp, width, RANKS, name=f"a{i}", seed=i) for i in range(depth))
        self.mlps = nn.ModuleList(ParallelMLP(tp, width, RANKS * units, name=f"m{i}", seed=i) for i in range(depth))
        self.assigner = ColumnAssigner(nn.ModuleList([self.attention, self.mlps]), tp)
        self.policy, self.grain = policy, grain
        self.assigner.follow(policy)

    @property
    def costs(self):
        classes = self.assigner.classes()
        curves = tuple(Curve((0.0, float(each.columns[0])), (0.0, 1.0)) for each in classes)
        return Costs(classes, (curves,) * RANKS, (self.grain,) * RANKS)

    def apply(self, *taken, decision_id=1):
        """Take these columns from rank 0, one `WorkReduction` per class: qkv, proj, fc1, fc2."""
        self.assigner.apply(
            WorkPlan(decision_id, reductions=((0, taken),), receivers=((1, 1.0),)), self.costs, self.policy
        )

    def matter(self, *shares):
        """Let this share of each layer's columns have moved, the later the more, the others not at all."""
        for group in self.assigner.groups:
            for linear, share in zip(group.linears, shares, strict=True):
                columns = linear.weight.shape[1]
                still = columns - int(share * columns)
                linear.weight.data[:, still:] += torch.arange(1.0, columns - still + 1)
        self.assigner.count_step()
        self.assigner.refresh()


@pytest.fixture(autouse=True)
def _telling_needs_nobody(monkeypatch):
    """Rank 0 alone gives columns away here; the other rank would only listen."""
    monkeypatch.setattr(torch.distributed, "broadcast", lambda tensor, src, group: None)


def zero(**fields):
    return BalancingSettings(strategy="ZERO", zero=Zero(**({"grain": 1} | fields)))


def semi(**fields):
    return BalancingSettings(strategy="SEMI", semi=Semi(zero=Zero(**({"grain": 1} | fields))))


def size(columns):
    return 0 if columns is None else len(columns)


def counts(model):
    """Return per class what each layer prunes and gives away."""
    found = []
    for group in model.assigner.groups:
        assigner = [linear.partition for linear in group.linears]
        found.append([(0, 0) if each is None else (size(each.pruned), size(each.migrated)) for each in assigner])
    return found


# -- classes ----------------------------------------------------------------------------------------------


def test_linears_of_one_size_and_kind_are_one_class_in_the_order_of_the_model():
    model = Model(zero())
    names = [[linear.name for linear in group.linears] for group in model.assigner.groups]
    parts = ["a{}.qkv", "a{}.proj", "m{}.fc1", "m{}.fc2"]
    assert names == [[part.format(i) for i in range(DEPTH)] for part in parts]
    classes = model.assigner.classes()
    assert [each.parallel for each in classes] == ["column", "row", "column", "row"]
    assert [each.columns for each in classes] == [(16, 16), (8, 8), (16, 16), (24, 24)]
    assert [each.outputs for each in classes] == [(24, 24), (16, 16), (24, 24), (16, 16)]


def test_calls_are_those_of_all_linears_of_a_class():
    model = Model(zero())
    for mlp in model.mlps:
        mlp(torch.zeros(2, 5, WIDTH))
    model.mlps[0].eval()
    model.mlps[0](torch.zeros(2, 5, WIDTH))
    assert [each.calls for each in model.assigner.classes()] == [0, 0, DEPTH, DEPTH]
    assert [each.rows for each in model.assigner.classes()] == [0, 0, 10, 10]
    model.assigner.forget_calls()
    assert [each.calls for each in model.assigner.classes()] == [0, 0, 0, 0]


# -- what is left out -------------------------------------------------------------------------------------


def test_kept_pruned_and_given_columns_are_all_columns_once():
    model = Model(semi(selection="Rd"))
    model.apply(WorkReduction(3, 5), WorkReduction(8, 0), WorkReduction(0, 16), WorkReduction(7, 4))
    for group in model.assigner.groups:
        for linear in group.linears:
            cut = linear.partition
            parts = [each.ids.tolist() for each in (cut.kept, cut.pruned, cut.migrated) if each is not None]
            assert sorted(column for part in parts for column in part) == list(range(linear.weight.shape[1]))
            assert all(part == sorted(part) for part in parts)
    assert counts(model) == [[pair] * DEPTH for pair in ((3, 5), (8, 0), (0, 16), (7, 4))]


def test_a_rank_without_reduction_keeps_its_plain_layers():
    model = Model(zero())
    model.apply(WorkReduction(1), WorkReduction(1), WorkReduction(1), WorkReduction(1))
    model.assigner.apply(WorkPlan(2, reductions=((1, (WorkReduction(4),) * 4),)), model.costs, model.policy)
    assert [linear.partition for linear in model.assigner.linears] == [None] * 4 * DEPTH


def test_pruned_parts_have_pruned_columns_and_no_migrated_ones():
    model = Model(semi(selection="Rd"))
    model.apply(WorkReduction(3, 5), WorkReduction(0, 6), WorkReduction(), WorkReduction(7))
    parts = {id(weight): (dim, ids.tolist()) for weight, dim, ids in model.assigner.pruned_parts()}
    pruned = [*(each.qkv for each in model.attention), *(each.fc2 for each in model.mlps)]
    assert parts == {id(each.weight): (1, each.partition.pruned.ids.tolist()) for each in pruned}


def test_before_the_first_plan_no_column_is_pruned():
    assert list(Model(zero()).assigner.pruned_parts()) == []


@pytest.mark.parametrize("grain", [1, 4])
def test_fc1_leaves_out_the_hidden_units_that_fc2_prunes(grain):
    model = Model(zero(paired_units=True, selection="Rd", grain=grain))
    model.apply(WorkReduction(4), WorkReduction(4), WorkReduction(8), WorkReduction(12))
    parts = {id(weight): (dim, ids.tolist()) for weight, dim, ids in model.assigner.pruned_parts()}
    drawn = []
    for mlp in model.mlps:
        pruned = mlp.fc2.partition.pruned.ids.tolist()
        assert len(pruned) == 12
        assert mlp.fc1.partition.units.rest.ids.tolist() == mlp.fc2.partition.units.rest.ids.tolist() == pruned
        assert parts[id(mlp.fc1.weight)] == (0, pruned) and parts[id(mlp.fc2.weight)] == (1, pruned)
        drawn.append(tuple(pruned))
    assert len(set(drawn)) == DEPTH  # every layer draws for itself
    assert [size(each.qkv.partition.pruned) for each in model.attention] == [4] * DEPTH  # attention has no such pairs


def test_paired_units_only_reduce_the_work():
    model = Model(zero(paired_units=True, selection="Rd"), depth=1)
    model.apply(WorkReduction(), WorkReduction(), WorkReduction(8), WorkReduction(12))
    (mlp,) = model.mlps
    kept, x = mlp.fc2.partition.kept.ids, torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1))
    hidden = torch.nn.functional.gelu(x @ mlp.fc1.weight[kept].t() + mlp.fc1.bias[kept])
    torch.testing.assert_close(mlp(x), hidden @ mlp.fc2.weight[:, kept].t() + mlp.fc2.bias)


# -- how much ---------------------------------------------------------------------------------------------

MOVED = [(0.0, 0.5, 1.0), (1.0, 1.0, 0.1), (0.3, 0.3, 0.3)]


@pytest.mark.parametrize("moved", MOVED, ids=str)
@pytest.mark.parametrize("grain", [1, 4])
def test_pridiff_distributes_the_pruned_columns_over_the_layers(grain, moved):
    model = Model(zero(selection="PriDiffR", grain=grain))
    model.matter(*moved)
    taken = [4, 4, 8, 12]
    model.apply(*map(WorkReduction, taken))
    for columns, found in zip(taken, counts(model), strict=True):
        assert sum(pruned for pruned, _ in found) == columns * DEPTH
    found = [pruned for pruned, _ in counts(model)[3]]
    assert [found[0] > found[2], found[2] > found[0]] == [moved[0] < moved[2], moved[2] < moved[0]]


@pytest.mark.parametrize("moved", MOVED, ids=str)
@pytest.mark.parametrize(
    "taken", [WorkReduction(4, 12), WorkReduction(6, 10), WorkReduction(8, 6), WorkReduction(1, 15)], ids=str
)
def test_layers_prune_the_planned_columns_beside_migrated_ones(moved, taken):
    """A layer that may prune more than the others has no more room for it than its migrating columns leave."""
    model = Model(semi(selection="PriDiffR"))
    model.matter(*moved)
    half = WorkReduction(taken.pruned // 2, taken.migrated // 2)
    model.apply(taken, half, taken, taken)
    for linears, each, found in zip(model.assigner.classes(), (taken, half, taken, taken), counts(model), strict=True):
        assert all(pruned + given <= linears.columns[0] for pruned, given in found)
        assert [given for _, given in found] == [each.migrated] * DEPTH
        assert sum(pruned for pruned, _ in found) == each.pruned * DEPTH


def whole_rank(what, **block):
    block = {"fixed_ratio": 1.0, "ranks": [0], **block}
    if what == "pruned":
        return BalancingSettings(strategy="ZERO", zero=Zero(gamma_max=1.0, **block))
    return BalancingSettings(strategy="MIG", mig=Mig(**block))


@pytest.mark.parametrize("grain", [None, 1, 7, 16], ids=lambda grain: f"grain-{grain or 'auto'}")
@pytest.mark.parametrize("what", ["pruned", "migrated"])
def test_a_fixed_ratio_of_one_takes_all_columns_although_the_last_block_is_not_whole(what, grain):
    policy = whole_rank(what, grain=grain)
    model = Model(policy, width=66, units=75, grain=2)
    plan = decide(History(policy.window), policy, WorkPlan(), model.costs)
    model.assigner.apply(plan, model.costs, policy)
    for group in model.assigner.groups:
        for linear in group.linears:
            gone = linear.partition.pruned if what == "pruned" else linear.partition.migrated
            assert size(linear.partition.kept) == 0 and size(gone) == linear.weight.shape[1]


def test_a_rank_that_prunes_everything_still_trains():
    policy = whole_rank("pruned", grain=1)
    model = Model(policy, depth=1)
    model.assigner.apply(decide(History(policy.window), policy, WorkPlan(), model.costs), model.costs, policy)
    (mlp,) = model.mlps
    out = mlp(torch.ones(2, 5, WIDTH, requires_grad=True))
    out.square().sum().backward()
    assert torch.equal(out, mlp.fc2.bias.expand(out.shape))
    assert not mlp.fc1.weight.grad.any() and not mlp.fc2.weight.grad.any()
