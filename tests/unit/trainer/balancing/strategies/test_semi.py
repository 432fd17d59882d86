"""SEMI: the plan that deletes least among the fast ones, against a search of its own; the paper's equation 2."""

from dataclasses import replace

import pytest
from heterotp_api.strategy_blocks import Mig, Semi, Zero
from heterotp_trainer.balancing.migration import Priced, receivers_of
from heterotp_trainer.balancing.paper_equations import balanced_beta
from heterotp_trainer.balancing.prediction import iteration_seconds, pruned_share
from heterotp_trainer.balancing.pruning import prune, reference_seconds
from heterotp_trainer.balancing.semi_candidates import SemiProblem
from heterotp_trainer.balancing.strategies.semi import least_deletion, split
from heterotp_trainer.plans.grains import grain_for
from heterotp_trainer.plans.linears import Line, Link
from heterotp_trainer.plans.work_reduction import WorkReduction
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.balancing_world import all_costs, even_costs, observations, seen

UNLIMITED = 1.0
ONE_OF_8 = [8.0] + [1.0] * 7
FOUR_OF_8 = [8.0, 6.0, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0]


def link(fixed=0.0, slope=0.0):
    return Link(*[Line(fixed, slope)] * 3)


def found(chis, costs=None, limit=UNLIMITED, **fields):
    """Return what the stragglers prune and migrate, as lists of one class."""
    observed = seen(chis)
    stragglers = [rank for rank, chi in enumerate(chis) if chi > 1]
    plan = split(costs or even_costs(len(chis)), observed, stragglers, Semi(**fields), limit, 0.0)
    shown = {rank: plan.reductions[rank][0] for rank in stragglers}
    return [each.pruned for each in shown.values()], [each.migrated for each in shown.values()]


# -- the choice -------------------------------------------------------------------------------------------


def splits_of_one(costs, wanted, rank, grain):
    """Yield what migrates of one straggler: the same share, in steps of 1/32, of every class."""
    for step in range(33):
        taken = []
        for linears, each in zip(costs.classes, wanted[rank], strict=True):
            block = grain_for(grain, costs.grains[rank], linears.columns[rank])
            moved = each.pruned * step // (32 * block) * block if step < 32 else each.pruned
            taken.append(WorkReduction(each.pruned - moved, moved))
        yield {rank: tuple(taken)}


def splits_of_several(costs, observed, wanted):
    """Yield, for every x, plans in which the x slowest migrate: all they give up, or of row-parallel linears only."""
    order = sorted(wanted, key=lambda rank: -observed.total[rank])
    for x in range(len(order) + 1):
        for kinds in (("row", "column"), ("row",)):
            yield {
                rank: tuple(
                    WorkReduction(0, each.pruned) if rank in order[:x] and linears.parallel in kinds else each
                    for linears, each in zip(costs.classes, wanted[rank], strict=True)
                )
                for rank in sorted(wanted)
            }


@st.composite
def choices(draw, count):
    """Draw costs, times, stragglers, settings and a limit; linears of one straggler are all of one kind."""
    kinds = ("row", "column") if count > 1 else (draw(st.sampled_from(["row", "column"])),)
    costs = draw(all_costs(kinds).filter(lambda drawn: drawn.ranks > count))
    observed = draw(observations(costs))
    slow = draw(st.permutations(range(costs.ranks)))[:count]
    grain = draw(st.sampled_from([None, 1, 7]))
    mig = Mig(grain=grain, primitive=draw(st.sampled_from(["broadcastReduce", "scatterGather"])))
    tolerance = draw(st.sampled_from([0.0, 0.05, 0.5]))
    chosen = Semi(zero=Zero(grain=grain, gamma_max=draw(st.floats(0, 1))), mig=mig, time_tolerance=tolerance)
    return costs, observed, slow, chosen, draw(st.sampled_from([0.0, 0.05, 1.0]))


def best_of(costs, observed, slow, chosen, limit, plans):
    """Return the least deleted share, and the least seconds with it, within tolerance of the fastest allowed."""
    receivers = receivers_of(costs, observed, slow, chosen.mig)
    prices = [
        (pruned_share(costs, plan), iteration_seconds(costs, observed, plan, receivers, chosen.mig.primitive, 0.25))
        for plan in plans
    ]
    allowed = [price for price in prices if price[0] <= limit]
    fastest = min(seconds for _, seconds in allowed)
    return min(price for price in allowed if price[1] <= (1 + chosen.time_tolerance) * fastest)


@pytest.mark.parametrize("count", [1, 2, 4])
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_the_plan_within_the_tolerance_with_the_least_deletion_is_chosen(count, data):
    costs, observed, slow, chosen, limit = data.draw(choices(count))
    least = reference_seconds(costs, observed, "minimum")
    wanted = prune(costs, observed, slow, chosen.zero, least, UNLIMITED)
    if count > 1:
        plans = splits_of_several(costs, observed, wanted)
    else:
        plans = splits_of_one(costs, wanted, slow[0], chosen.zero.grain) if wanted else [{}]
    bounded = [prune(costs, observed, slow, chosen.zero, least, limit)] if limit < 1 else []
    plan = split(costs, observed, slow, chosen, limit, 0.25)
    share, seconds = best_of(costs, observed, slow, chosen, limit, [*plans, *bounded])
    assert pruned_share(costs, plan.reductions) == pytest.approx(share)
    assert plan.seconds == pytest.approx(seconds)


@given(
    st.lists(st.sampled_from([1.5, 2.0, 3.0, 8.0]), min_size=40, max_size=40),
    st.sampled_from([0.0, 1e-9]),
    st.sampled_from([0.0, 0.05, 0.5]),
    st.sampled_from([0.1, 0.5, 1.0]),
)
@example([8.0] * 40, 0.0, 0.5, 0.1)  # columns of row-parallel linears alone would delete more than allowed, and fast
@settings(max_examples=20, deadline=None)
def test_of_forty_stragglers_every_x_is_as_good_as_priced(chis, slope, tolerance, limit):
    one = even_costs(48, link=link(1e5 * slope, slope))
    both = tuple(even_costs(48, parallel=parallel).classes[0] for parallel in ("column", "row"))
    costs = replace(one, classes=both, curves=tuple((curve, curve) for (curve,) in one.curves))
    observed, slow = seen([2 * chi for chi in [*chis, *[1.0] * 8]]), range(40)
    chosen = Semi(time_tolerance=tolerance)
    least = reference_seconds(costs, observed, "minimum")
    wanted = dict(prune(costs, observed, slow, chosen.zero, least, UNLIMITED))
    bounded = [prune(costs, observed, slow, chosen.zero, least, limit)] if limit < 1 else []
    plans = [*splits_of_several(costs, observed, wanted), *bounded]
    plan = split(costs, observed, slow, chosen, limit, 0.25)
    share, seconds = best_of(costs, observed, slow, chosen, limit, plans)
    assert (pruned_share(costs, plan.reductions), plan.seconds) == (pytest.approx(share), pytest.approx(seconds))


@pytest.mark.parametrize(
    ("tolerance", "pruned", "migrated"),
    [(0.0, 840, 0), (0.05, 525, 315), (0.1, 184, 656), (0.125, 0, 840), (10.0, 0, 840)],
    ids=str,
)
def test_more_time_is_less_deletion(tolerance, pruned, migrated):
    # a seventh of what migrates comes to each of the others: 315 columns take them 1.047, 341 take 1.051
    assert found(ONE_OF_8, time_tolerance=tolerance) == ([pruned], [migrated])


@pytest.mark.parametrize("chis", [ONE_OF_8, FOUR_OF_8], ids=["one", "four"])
def test_with_a_bound_and_a_slow_link_the_bounded_share_is_pruned(chis):
    costs, observed = even_costs(8, link=link(slope=1.0)), seen(chis)
    slow = [rank for rank, chi in enumerate(chis) if chi > 1]
    plan = split(costs, observed, slow, Semi(), 0.03, 0.0)
    assert 0.02 < pruned_share(costs, plan.reductions) <= 0.03  # and nothing migrates
    assert plan.seconds < iteration_seconds(costs, observed, {})


@pytest.mark.parametrize("chis", [ONE_OF_8, FOUR_OF_8], ids=["one", "four"])
@pytest.mark.parametrize(
    ("prices", "lossless"), [(link(), True), (link(fixed=1e6), False), (link(slope=1.0), False)], ids=str
)
def test_free_links_are_lossless_and_dear_ones_prune(chis, prices, lossless):
    pruned, migrated = found(chis, even_costs(8, link=prices), time_tolerance=1.0)
    assert (any(pruned), any(migrated)) == (not lossless, lossless)


def test_several_migrate_from_the_slowest_on():
    pruned, migrated = found([2.0, 8.0, 4.0, 1.0, 1.0, 1.0, 1.0, 1.0], time_tolerance=0.2)
    assert (pruned, migrated) == ([480, 0, 720], [0, 840, 0])


def test_row_parallel_linears_migrate_first():
    both = [even_costs(8, parallel=parallel).classes[0] for parallel in ("column", "row")]
    one = even_costs(8)
    costs = replace(one, classes=tuple(both), curves=tuple((curve, curve) for (curve,) in one.curves))
    for tolerance in (0.05, 0.1):
        plan = split(costs, seen([2.0 * chi for chi in ONE_OF_8]), [0], Semi(time_tolerance=tolerance), UNLIMITED, 0.0)
        column, row = plan.reductions[0]
        assert row.migrated > 0 and (row.pruned == 0 or column.migrated == 0)
        assert (column.migrated > 0) == (tolerance > 0.0625)


CHEAP, DEAR = {0: (WorkReduction(96, 0),)}, {0: (WorkReduction(192, 0),)}
NOTHING = {0: (WorkReduction(0, 192),)}


@pytest.mark.parametrize(
    ("plans", "tolerance", "limit", "chosen"),
    [
        ([(CHEAP, 1.04), (DEAR, 1.0)], 0.05, 1.0, 0),
        ([(CHEAP, 1.06), (DEAR, 1.0)], 0.05, 1.0, 1),
        ([(CHEAP, 1.04), (CHEAP, 1.02), (DEAR, 1.0)], 0.05, 1.0, 1),
        ([(CHEAP, 3.0), (DEAR, 1.0)], 0.05, 0.04, 0),
        ([(CHEAP, 1.0), (NOTHING, 9.0)], 0.05, 0.0, 1),
        ([(DEAR, 1.0), (CHEAP, 9.0)], 0.05, 0.01, 1),
    ],
    ids=["in-time", "too-slow", "a-tie-to-the-faster", "limit", "limit-0", "nothing-allowed"],
)
def test_least_deletion(plans, tolerance, limit, chosen):
    priced = [Priced(reductions, (), seconds) for reductions, seconds in plans]
    assert least_deletion(even_costs(4), priced, tolerance, limit) is priced[chosen]


# -- bounds and overrides ---------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("chis", [ONE_OF_8, FOUR_OF_8], ids=["one", "four"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"beta_rule": "costBalance"}, {"migrating_stragglers": 0}, {"migrating_stragglers": 1}],
    ids=["least-deletion", "cost-balance", "lambda-0", "lambda-1"],
)
def test_the_limit_bounds_whatever_else_decides(fields, chis, limit):
    pruned, migrated = found(chis, even_costs(8, link=link(fixed=1e-4)), limit, **fields)
    assert sum(pruned) <= limit * 8 * 960
    assert any(migrated)


@pytest.mark.parametrize(("wanted", "senders"), [(0, 0), (1, 1), (3, 3), (4, 4), (99, 4)], ids=str)
def test_lambda_sets_how_many_of_the_slowest_migrate(wanted, senders):
    pruned, migrated = found(FOUR_OF_8, migrating_stragglers=wanted)
    columns = [840, 800, 720, 480]
    assert (pruned, migrated) == ([0] * senders + columns[senders:], columns[:senders] + [0] * (4 - senders))


@pytest.mark.parametrize(("wanted", "split"), [(0, ([840], [0])), (1, ([0], [840])), (2, ([0], [840]))], ids="012")
def test_lambda_of_one_straggler(wanted, split):
    assert found(ONE_OF_8, migrating_stragglers=wanted, beta_rule="costBalance") == split


# -- equation 2 -------------------------------------------------------------------------------------------

# a column of 8 rows and 32 outputs, row-parallel: 160 bytes out; a 7 x 960th of a second for each of the receivers
OMEGA = {"allocation": 0.01, "extraction": Line(0.0, 0.2)}


@pytest.mark.parametrize("slope", [1e-7, 5.2e-7, 2e-6], ids="{}-s-per-byte".format)
def test_beta_balances_the_costs_of_pruning_and_migration(slope):
    costs = even_costs(8, parallel="row", link=Link(broadcast=Line(0.0, slope)), **OMEGA)
    beta = balanced_beta(SemiProblem(costs, seen(ONE_OF_8), [0], Semi(), 0.0))
    # Omega1 + Omega2 of what is pruned = Omega2 of what is packed + Phi1 + Phi2
    columns = (0.01 + 0.2 * 840 / 960) / (2 * 0.2 / 960 + 160 * slope + 1 / 6720)
    assert beta * 840 == pytest.approx(columns, abs=8)
    pruned, migrated = found(ONE_OF_8, costs, beta_rule="costBalance")
    assert migrated == [int(beta * 840)] and pruned == [840 - int(beta * 840)]


@pytest.mark.parametrize(
    ("costs", "split"),
    [
        ({"link": link(fixed=10.0), **OMEGA}, ([840], [0])),
        ({"link": link(slope=1.0), **OMEGA}, ([840], [0])),
        ({}, ([840], [0])),
        ({"link": link(fixed=0.01, slope=1e-9), "allocation": 1.0, "extraction": Line(0.0, 0.5)}, ([0], [840])),
        ({"link": link(), "allocation": 1.0}, ([0], [840])),
    ],
    ids=["dear-fixed-part", "dear-bytes", "pruning-is-free", "pruning-is-dear", "allocation-is-dear"],
)
def test_without_a_root_beta_is_0_or_1(costs, split):
    assert found(ONE_OF_8, even_costs(8, parallel="row", **costs), beta_rule="costBalance") == split
