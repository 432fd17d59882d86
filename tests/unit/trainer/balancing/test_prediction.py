"""Costs of plans, receivers of migrated columns, and the hash of a plan."""

import bisect
from dataclasses import replace

import pytest
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Mig
from heterotp_trainer.balancing.migration import receivers_of
from heterotp_trainer.balancing.prediction import iteration_seconds, transfer_seconds
from heterotp_trainer.plans.arrays import interpolated
from heterotp_trainer.plans.linears import Curve, Line, Link
from heterotp_trainer.plans.work_plan import Piece, WorkPlan, pieces
from heterotp_trainer.plans.work_reduction import WorkReduction
from hypothesis import given, settings
from hypothesis import strategies as st
from support.balancing_world import all_costs, even_costs, seen

# -- prices -----------------------------------------------------------------------------------------------


def on_line(xs, ys, x):
    """Return y at x on the lines through the points, of points at one x the last; above them the last slope."""
    right = min(bisect.bisect_right(xs, x), len(xs) - 1)
    x0, x1, y0, y1 = xs[right - 1], xs[right], ys[right - 1], ys[right]
    return y1 if x1 <= x0 else y0 + (x - x0) * (y1 - y0) / (x1 - x0)


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_the_tables_hold_the_curves(data):
    costs = data.draw(all_costs())
    columns = costs.tables.columns * data.draw(st.sampled_from([0.0, 0.3, 0.5, 1.0, 1.7])) + 1
    seconds = costs.tables.seconds(columns)
    fitting = interpolated(costs.tables.ys, costs.tables.xs, seconds)
    for k in range(len(costs.classes)):
        for rank, curves in enumerate(costs.curves):
            curve = curves[k]
            assert seconds[k, rank] == pytest.approx(on_line(curve.columns, curve.seconds, columns[k, rank]))
            assert fitting[k, rank] == pytest.approx(on_line(curve.seconds, curve.columns, seconds[k, rank]))


LINK = Link(broadcast=Line(1.0, 0.1), reduce=Line(10.0, 0.01), piece=Line(100.0, 0.001))


@pytest.mark.parametrize(
    ("parallel", "primitive", "seconds"),
    [
        # M = 8 rows, R = 32 outputs, 6 columns, 4 bytes, two receivers
        ("column", "broadcastReduce", (1 + 76.8) + (10 + 10.24) + (1 + 102.4) + (200 + 0.768)),
        ("row", "broadcastReduce", (1 + 96) + (200 + 0.96)),
        ("column", "scatterGather", (200 + 0.768) + 2 * 2 * (100 + 1.024) + (200 + 0.768) + (200 + 0.192)),
        ("row", "scatterGather", (200 + 0.96) + (200 + 0.96) + 2 * (100 + 1.024)),
    ],
)
def test_transfers_are_priced_by_bytes_of_both_directions(parallel, primitive, seconds):
    costs = even_costs(3, parallel=parallel, link=LINK)
    reductions = {0: (WorkReduction(0, 6),)}
    assert transfer_seconds(costs, reductions, 2, primitive) == pytest.approx(seconds)
    three = replace(costs, classes=(replace(costs.classes[0], calls=3),))
    assert transfer_seconds(three, reductions, 2, primitive) == pytest.approx(3 * seconds)


def test_an_iteration_takes_as_long_as_its_slowest_rank_and_its_transfers():
    bent = Curve((0.0, 480.0, 960.0), (0.0, 0.8, 1.0))
    even = even_costs(3, parallel="row", link=LINK, allocation=0.01, extraction=Line(0.02, 0.2))
    costs = replace(even, curves=((bent,), even.curves[1], even.curves[2]))
    observed = seen([4.0, 1.0, 2.0], unit=[0.1, 0.2, 0.3], fixed=0.5)
    receivers = ((1, 1.0), (2, 0.5))
    pruned, moved, cutting = {0: (WorkReduction(480),)}, {0: (WorkReduction(0, 480),)}, 0.01 + 0.02 + 0.2 * 0.5
    assert iteration_seconds(costs, observed, {}, base_wait=0.25) == pytest.approx(4.6 + 0.25)
    assert iteration_seconds(costs, observed, pruned) == pytest.approx(4 * 0.8 + 0.6 + cutting)
    transfers = transfer_seconds(costs, moved, 2, "broadcastReduce")
    assert iteration_seconds(costs, observed, moved, receivers) == pytest.approx(4 * 0.8 + 0.6 + cutting + transfers)
    all_moved = {0: (WorkReduction(0, 960),)}  # 320 and so a third of its work more for rank 2, of speed 1/2
    transfers = transfer_seconds(costs, all_moved, 2, "broadcastReduce")
    assert iteration_seconds(costs, observed, all_moved, receivers) == pytest.approx(2 * 4 / 3 + 0.8 + transfers)


@pytest.mark.parametrize(("unit", "seconds"), [(0.0, 2.0), (5.0, 5.5)], ids=["half-a-shard", "no-shard"])
def test_received_work_is_scaled_to_the_receivers_shard(unit, seconds):
    even = even_costs(3)
    curves = (*even.curves[:2], (Curve((0.0, 1.0), (0.0, 0.0)),))
    costs = replace(even, classes=(replace(even.classes[0], outputs=(32, 16, 0)),), curves=curves)
    observed = seen([4.0, 1.0, 0.0], unit=[0.0, 0.0, unit])
    assert iteration_seconds(costs, observed, {0: (WorkReduction(0, 960),)}, ((1, 1.0), (2, 1.0))) == seconds


# -- who computes what ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "receivers", "cut"),
    [
        ({}, [(0, 1.0)], []),
        ({3: 6}, [(0, 1.0), (1, 1.0), (2, 1.0)], [(3, 0, 0, 2), (3, 1, 2, 4), (3, 2, 4, 6)]),
        ({3: 7}, [(0, 1.0), (1, 1.0), (2, 1.0)], [(3, 0, 0, 3), (3, 1, 3, 5), (3, 2, 5, 7)]),
        ({3: 9}, [(0, 1.0), (1, 0.5)], [(3, 0, 0, 6), (3, 1, 6, 9)]),
        ({3: 1}, [(0, 0.5), (1, 1.0)], [(3, 1, 0, 1)]),
        ({1: 4, 3: 3}, [(0, 1.0), (2, 1.0)], [(1, 2, 0, 2), (1, 0, 2, 4), (3, 0, 0, 2), (3, 2, 2, 3)]),
    ],
    ids=["nothing", "even", "remainder", "by-weight", "too-few", "two-senders"],
)
def test_pieces(counts, receivers, cut):
    assert pieces(counts, receivers) == tuple(Piece(*each) for each in cut)


@pytest.mark.parametrize("sender", range(8))
def test_slices_follow_the_papers_virtual_ranks(sender):
    m, ranks = 5, 8
    receivers = [(rank, 1.0) for rank in range(ranks) if rank != sender]
    found = {piece.receiver: (piece.start, piece.stop) for piece in pieces({sender: m * (ranks - 1)}, receivers)}
    virtual = {rank: (rank + ranks - sender) % ranks for rank, _ in receivers}
    assert found == {rank: (m * (v - 1), m * v) for rank, v in virtual.items()}


@given(
    st.dictionaries(st.integers(0, 9), st.integers(1, 300), max_size=4),
    st.dictionaries(st.integers(10, 19), st.floats(0.01, 1), min_size=1, max_size=6),
)
def test_pieces_cover_every_column_once_in_proportion_to_speed(counts, weights):
    cut = pieces(counts, list(weights.items()))
    for sender, count in counts.items():
        mine = [piece for piece in cut if piece.sender == sender]
        assert [column for piece in mine for column in range(piece.start, piece.stop)] == list(range(count))
        assert len({piece.receiver for piece in mine}) == len(mine)
        for piece in mine:  # no other rank would be done sooner with one of its columns
            rest = min((sum(p.columns for p in mine if p.receiver == r) + 1) / w for r, w in weights.items())
            assert piece.columns / weights[piece.receiver] <= rest * (1 + 1e-9)


@pytest.mark.parametrize(
    ("full", "columns", "receivers"),
    [
        ([9.0, 1, 2, 4], (960,) * 4, ((1, 1.0), (2, 0.5), (3, 0.25))),
        ([9.0, 1, 1, 2], (960, 480, 960, 960), ((1, 0.5), (2, 1.0), (3, 0.5))),
        ([9.0, 1, 0, 2], (960, 960, 0, 960), ((1, 1.0), (2, 1.0), (3, 0.5))),
        ([9.0, 1, 0, 2], (960,) * 4, ((1, 1.0), (2, 1.0), (3, 0.5))),
    ],
    ids=["by-time", "by-work-a-second", "one-without-work", "one-without-time"],
)
def test_receivers_are_the_others_by_their_speed(full, columns, receivers):
    even = even_costs(4, parallel="row")
    costs = replace(even, classes=(replace(even.classes[0], columns=columns),))
    assert receivers_of(costs, seen(full), [0], Mig()) == receivers


# -- identity ---------------------------------------------------------------------------------------------

PLAN = WorkPlan(
    3,
    BalancingSettings(strategy="MIG"),
    ((0, (WorkReduction(8, 16), WorkReduction(0, 4))),),
    ((1, 1.0), (2, 0.5)),
    stragglers=(0,),
    basis=(2.0, 1.0, 1.0),
)


@pytest.mark.parametrize(
    "change",
    [
        {"decision_id": 4},  # of which random columns are drawn
        {"reductions": ((0, (WorkReduction(16, 8), WorkReduction(0, 4))),)},
        {"reductions": ((0, (WorkReduction(0, 4), WorkReduction(8, 16))),)},
        {"reductions": ((1, (WorkReduction(8, 16), WorkReduction(0, 4))),)},
        {"receivers": ((2, 1.0), (1, 0.5))},
        {"receivers": ((1, 1.0), (2, 0.5 + 2**-53))},
        {"primitive": "scatterGather"},
    ],
    ids=["decision_id", "pruned", "class", "rank", "order", "weight", "primitive"],
)
def test_the_hash_differs_for_different_work(change):
    assert replace(PLAN, **change).hash != PLAN.hash


@pytest.mark.parametrize(
    "change",
    [{"predicted_seconds": 1.0}, {"reason": "because"}, {"basis": (3.0, 1.0, 1.0)}, {"base_wait": 0.5}],
    ids=lambda change: next(iter(change)),
)
def test_the_hash_covers_the_work_only(change):
    assert replace(PLAN, **change).hash == PLAN.hash
    assert len(PLAN.hash) == 16
