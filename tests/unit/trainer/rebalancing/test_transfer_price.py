"""The price of transfers follows what iterations take that move columns."""

import pytest
from heterotp_trainer.balancing.prediction import transfer_seconds
from support.balancer_world import LINK, NOTHING, migrating, pruning


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
