"""Plans: feasible, the same on all ranks, changed for a reason only; their prices; who computes which columns."""

from dataclasses import replace

import pytest
from balancing_world import POLICIES, all_costs, even_costs, history_of, seen, situations
from heterotp_api.policy import BalancingSettings, Mig, Semi, Zero
from heterotp_trainer.balancer import observation
from heterotp_trainer.balancing.arrays import interpolated
from heterotp_trainer.balancing.decide import decide
from heterotp_trainer.balancing.effect import effects
from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.migration import receivers_of
from heterotp_trainer.balancing.predict import iteration_seconds, pruned_share, transfer_seconds
from heterotp_trainer.balancing.work import Curve, Line, Link, Piece, Taken, WorkPlan, grain_for, pieces
from heterotp_trainer.clock import PHASES
from heterotp_trainer.exchange import Report
from hypothesis import given, settings
from hypothesis import strategies as st

THOROUGH = settings(max_examples=150, deadline=None)
FIXED_MIG = BalancingSettings(strategy="MIG", window=1, mig=Mig(fixed_ratio=0.5, ranks=[1]))


def policy(strategy, **fields):
    return BalancingSettings(strategy=strategy, **({"window": 1} | fields))


def followed(costs, settings, observed):
    """Return the plan after each boundary, as one rank's balancer comes to them."""
    history, plan, out = history_of(window=settings.window), WorkPlan(), []
    for each in observed:
        history.add(each)
        plan = decide(history, settings, plan, costs)
        out.append(plan)
    return out


def packed(each):
    """Return an observation as the other ranks get it: by the vectors of the exchange."""

    def report(rank):
        times = {"unit": each.unit[rank], "fixed": each.fixed[rank], "wait": each.wait[rank]}
        return Report(7, full=each.full[rank], seconds=dict.fromkeys(PHASES, 0.0) | times)

    return observation([Report.unpack(report(rank).pack()) for rank in range(len(each.full))], each.migrating)


# -- feasible ---------------------------------------------------------------------------------------------


def halves(settings):
    """Return how a policy prunes and how it migrates."""
    semi = settings.semi or Semi()
    return (settings.zero or semi.zero, semi.zero if settings.strategy == "SEMI" else settings.mig or Mig())


def check_feasible(plan, costs, settings):
    receivers, (zero, mig) = [rank for rank, _ in plan.receivers], halves(settings)
    assert set(plan.taken) <= set(plan.stragglers)
    assert len(set(receivers)) == len(receivers) and not set(receivers) & set(plan.stragglers)
    assert pruned_share(costs, plan.taken) <= settings.pruned_share_limit
    for rank, classes in plan.reliefs:
        for linears, taken in zip(costs.classes, classes, strict=True):
            whole = linears.columns[rank]
            assert taken.pruned >= 0 and taken.migrated >= 0 and taken.pruned + taken.migrated <= whole
            assert taken.pruned % grain_for(zero.grain, costs.grains[rank], whole) == 0
            assert taken.migrated % grain_for(mig.grain, costs.grains[rank], whole) == 0
            assert taken.pruned <= zero.gamma_max * whole
    for k in range(len(costs.classes)):
        cut = plan.pieces(k)
        assert {piece.receiver for piece in cut} <= set(receivers) and all(piece.columns > 0 for piece in cut)
        for rank, classes in plan.reliefs:
            ranges = [(piece.start, piece.stop) for piece in cut if piece.sender == rank]
            assert [column for start, stop in ranges for column in range(start, stop)] == [*range(classes[k].migrated)]


def check_effects(plan, costs):
    shown = effects(plan, costs)
    assert sum(each.columns_out for each in shown) == sum(each.columns_in for each in shown)
    own = [sum(c.operations(rank, c.columns[rank]) for c in costs.classes) for rank in range(costs.ranks)]
    given_away = sum(each.migrated * work for each, work in zip(shown, own, strict=True))
    assert sum(each.received for each in shown) * sum(own) / costs.ranks == pytest.approx(given_away)
    deleted = sum(each.pruned * work for each, work in zip(shown, own, strict=True))
    assert deleted == pytest.approx(pruned_share(costs, plan.taken) * sum(own))


@given(situations())
@THOROUGH
def test_every_plan_is_feasible_and_says_what_it_does(situation):
    costs, settings, observed = situation
    for plan in followed(costs, settings, observed):
        check_feasible(plan, costs, settings)
        check_effects(plan, costs)
        assert plan.reason.startswith((settings.strategy, "rank"))
        if settings.strategy in ("None", "RESHARD") or (settings.strategy == "AUTO" and not settings.max_pruned_share):
            assert not plan.reliefs


@given(situations())
@THOROUGH
def test_every_rank_comes_to_the_same_plan(situation):
    costs, settings, observed = situation
    mine = followed(costs, settings, observed)
    assert mine == followed(costs, settings, [packed(each) for each in observed])
    assert [plan.hash for plan in mine] == [plan.hash for plan in followed(costs, settings, observed)]


@given(situations())
@THOROUGH
def test_a_plan_stays_while_nothing_changes(situation):
    costs, settings, observed = situation
    same = [observed[0]] * (3 * settings.window + 2)
    plans = followed(costs, settings, same)
    assert plans[-1] is plans[-2]
    assert len({id(plan) for plan in plans}) <= 3  # at first, after one window, after two


@given(situations(("MIG",)))
@THOROUGH
def test_mig_is_never_slower_than_doing_nothing(situation):
    costs, settings, observed = situation
    plan, last = followed(costs, settings, [observed[-1]] * 2 * settings.window)[-1], observed[-1]
    nothing = iteration_seconds(costs, last, {}, base_wait=min(last.wait))
    found = iteration_seconds(costs, last, plan.taken, plan.receivers, plan.primitive, min(last.wait))
    assert plan.predicted_seconds == (found if plan.stragglers else None)
    assert found < nothing if plan.reliefs else found == nothing


@pytest.mark.parametrize("strategy", ["ZERO", "MIG", "SEMI", "AUTO", "None", "RESHARD"])
def test_a_straggler_is_relieved_as_the_strategy_says(strategy):
    settings = policy(strategy, **({"max_pruned_share": 0.5} if strategy == "AUTO" else {}))
    plan = followed(even_costs(8), settings, [seen([4.0] + [1.0] * 7)] * 2)[-1]
    assert plan.stragglers == (0,)
    mine = effects(plan, even_costs(8))[0]
    relieved = {"ZERO": (True, False), "AUTO": (True, False), "MIG": (False, True), "SEMI": (True, True)}
    assert (mine.pruned > 0, mine.migrated > 0) == relieved.get(strategy, (False, False))
    assert plan.reason.startswith("rank 0 is 4.0x slower")


@pytest.mark.parametrize(
    ("zero", "mig", "pruned", "migrated"),
    [(None, 24, 304, 192), (40, None, 80, 400), (40, 24, 120, 360), (None, None, 304, 192)],
    ids=["16-24", "40-16", "40-24", "16-16"],
)
def test_what_semi_leaves_to_prune_is_whole_blocks(zero, mig, pruned, migrated):
    costs, observed = even_costs(8, columns=1000, grain=16), seen([2.0] + [1.0] * 7)
    for tolerance, split in ((0.02, (pruned, migrated)), (1.0, (0, pruned + migrated))):
        semi = Semi(zero=Zero(grain=zero), mig=Mig(grain=mig), time_tolerance=tolerance)
        plan = followed(costs, policy("SEMI", semi=semi), [observed] * 2)[-1]
        assert plan.reliefs == ((0, (Taken(*split),)),)


# -- when to plan again -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", sorted(POLICIES))
@pytest.mark.parametrize(
    ("after", "fields", "again"),
    [
        ([2.0, 1, 1, 1], {}, False),
        ([2.19, 1, 1, 1], {}, False),
        ([1.81, 1, 1, 1], {}, False),
        ([2.21, 1, 1, 1], {}, True),
        ([1.79, 1, 1, 1], {}, True),
        ([2.21, 1, 1, 1], {"replan_threshold": 0.5}, False),
        ([2.0, 0.8, 1.2, 1], {}, False),
        ([2.0, 3, 1, 1], {}, True),
        ([1.0, 2, 1, 1], {}, True),
        ([1.0, 1, 1, 1], {}, True),
    ],
    ids=["same", "little-slower", "little-faster", "slower", "faster", "threshold", "others", "more", "other", "well"],
)
def test_a_plan_is_made_anew_for_other_stragglers_or_other_slowness(strategy, after, fields, again):
    settings, costs = policy(strategy, **fields), even_costs(4)
    history = history_of(*[seen([2.0, 1, 1, 1])] * 2)
    plan = decide(history, settings, WorkPlan(), costs)
    history.add(seen([float(full) for full in after]))
    found = decide(history, settings, plan, costs)
    assert (found is not plan) == again
    if again:
        assert found.serial == plan.serial + 1 and found.basis == tuple(after)
        assert found.stragglers == tuple(rank for rank, full in enumerate(after) if full > 1.3)


def test_another_policy_makes_another_plan():
    costs, history = even_costs(4), history_of(*[seen([2.0, 1, 1, 1])] * 2)
    plan = decide(history, policy("ZERO"), WorkPlan(), costs)
    for other in (policy("ZERO", zero=Zero(imputation="Same")), policy("MIG"), policy("None"), FIXED_MIG):
        found = decide(history, other, plan, costs)
        assert found.settings == other and found.serial > plan.serial and found.hash != plan.hash
        assert decide(history, other, found, costs) is found


def test_another_policy_does_not_forget_who_is_slow():
    costs, history = even_costs(4), history_of(*[seen([2.0, 1, 1, 1])] * 2)
    plan = decide(history, policy("ZERO"), WorkPlan(), costs)
    history.add(seen([1.07, 1, 1, 1]))  # between exit and enter
    assert decide(history, policy("ZERO", replan_threshold=0.2), plan, costs).stragglers == (0,)


def test_before_a_window_is_full_the_work_stays_as_it_is():
    plan = decide(history_of(seen([9.0, 1, 1, 1]), window=5), policy("ZERO", window=5), WorkPlan(), even_costs(4))
    assert (plan.reliefs, plan.reason) == ((), "ZERO: no rank is known to be slow")


def test_the_least_wait_is_learnt_while_nothing_migrates():
    costs, slow = even_costs(4), [8.0, 1, 1, 1]
    history = history_of(*[seen(slow, wait=[0.0, 7.2, 7.1, 7.3])] * 2)
    plan = decide(history, policy("MIG"), WorkPlan(), costs)
    assert plan.migrates and plan.base_wait == 0.0
    history.add(Observation.of([4.0, 1, 1, 1], [0.0] * 4, [0.0] * 4, [0.5] * 4, migrating=True))
    assert decide(history, policy("MIG"), plan, costs).base_wait == 0.0


def test_a_fixed_share_migrates_from_the_first_iteration_on():
    plan = decide(history_of(), FIXED_MIG, WorkPlan(), even_costs(3))
    assert plan.reliefs == ((1, (Taken(0, 480),)),)
    assert plan.pieces(0) == (Piece(1, 2, 0, 240), Piece(1, 0, 240, 480))
    assert plan.reason == "MIG: 50% of the columns of rank 1 migrated, as the policy fixes it"


# -- prices -----------------------------------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_the_tables_hold_the_curves(data):
    costs = data.draw(all_costs())
    columns = costs.tables.columns * data.draw(st.sampled_from([0.0, 0.3, 0.5, 1.0, 1.7])) + 1
    seconds = costs.tables.seconds(columns)
    fitting = interpolated(costs.tables.ys, costs.tables.xs, seconds)
    for k in range(len(costs.classes)):
        for rank, curves in enumerate(costs.curves):
            assert seconds[k, rank] == pytest.approx(curves[k].at(columns[k, rank]))
            assert fitting[k, rank] == pytest.approx(curves[k].columns_at(seconds[k, rank]))


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
def test_transfers_are_priced_by_what_goes_out_and_comes_back(parallel, primitive, seconds):
    costs = even_costs(3, parallel=parallel, link=LINK)
    reliefs = {0: (Taken(0, 6),)}
    assert transfer_seconds(costs, reliefs, 2, primitive) == pytest.approx(seconds)
    three = replace(costs, classes=(replace(costs.classes[0], calls=3),))
    assert transfer_seconds(three, reliefs, 2, primitive) == pytest.approx(3 * seconds)


def test_an_iteration_takes_as_long_as_its_slowest_rank_and_its_transfers():
    bent = Curve((0.0, 480.0, 960.0), (0.0, 0.8, 1.0))
    even = even_costs(3, parallel="row", link=LINK, allocation=0.01, extraction=Line(0.02, 0.2))
    costs = replace(even, curves=((bent,), even.curves[1], even.curves[2]))
    observed = seen([4.0, 1.0, 2.0], unit=[0.1, 0.2, 0.3], fixed=0.5)
    receivers = ((1, 1.0), (2, 0.5))
    pruned, moved, cutting = {0: (Taken(480),)}, {0: (Taken(0, 480),)}, 0.01 + 0.02 + 0.2 * 0.5
    assert iteration_seconds(costs, observed, {}, base_wait=0.25) == pytest.approx(4.6 + 0.25)
    assert iteration_seconds(costs, observed, pruned) == pytest.approx(4 * 0.8 + 0.6 + cutting)
    transfers = transfer_seconds(costs, moved, 2, "broadcastReduce")
    assert iteration_seconds(costs, observed, moved, receivers) == pytest.approx(4 * 0.8 + 0.6 + cutting + transfers)
    all_moved = {0: (Taken(0, 960),)}  # 320 and so a third of its work more for rank 2, of speed 1/2
    transfers = transfer_seconds(costs, all_moved, 2, "broadcastReduce")
    assert iteration_seconds(costs, observed, all_moved, receivers) == pytest.approx(2 * 4 / 3 + 0.8 + transfers)


@pytest.mark.parametrize(("unit", "seconds"), [(0.0, 2.0), (5.0, 5.5)], ids=["half-a-shard", "no-shard"])
def test_received_work_is_scaled_to_the_receivers_shard(unit, seconds):
    even = even_costs(3)
    curves = (*even.curves[:2], (Curve((0.0, 1.0), (0.0, 0.0)),))
    costs = replace(even, classes=(replace(even.classes[0], outputs=(32, 16, 0)),), curves=curves)
    observed = seen([4.0, 1.0, 0.0], unit=[0.0, 0.0, unit])
    assert iteration_seconds(costs, observed, {0: (Taken(0, 960),)}, ((1, 1.0), (2, 1.0))) == seconds


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
        for piece in mine:  # nobody would be done sooner with one of its columns
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
    assert receivers_of(costs, seen(full), [0]) == receivers


# -- identity ---------------------------------------------------------------------------------------------

PLAN = WorkPlan(
    3,
    policy("MIG"),
    ((0, (Taken(8, 16), Taken(0, 4))),),
    ((1, 1.0), (2, 0.5)),
    stragglers=(0,),
    basis=(2.0, 1.0, 1.0),
)


@pytest.mark.parametrize(
    "change",
    [
        {"serial": 4},  # of which random columns are drawn
        {"reliefs": ((0, (Taken(16, 8), Taken(0, 4))),)},
        {"reliefs": ((0, (Taken(0, 4), Taken(8, 16))),)},
        {"reliefs": ((1, (Taken(8, 16), Taken(0, 4))),)},
        {"receivers": ((2, 1.0), (1, 0.5))},
        {"receivers": ((1, 1.0), (2, 0.5 + 2**-53))},
        {"primitive": "scatterGather"},
    ],
    ids=["serial", "pruned", "class", "rank", "order", "weight", "primitive"],
)
def test_the_hash_tells_apart_what_ranks_do(change):
    assert replace(PLAN, **change).hash != PLAN.hash


@pytest.mark.parametrize(
    "change",
    [{"predicted_seconds": 1.0}, {"reason": "because"}, {"basis": (3.0, 1.0, 1.0)}, {"base_wait": 0.5}],
    ids=lambda change: next(iter(change)),
)
def test_the_hash_is_of_what_ranks_do_only(change):
    assert replace(PLAN, **change).hash == PLAN.hash
    assert len(PLAN.hash) == 16
