"""Plans: feasible, the same on all ranks, changed for a reason only."""

import pytest
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Mig, Semi, Zero
from heterotp_trainer.balancing.decide import decide
from heterotp_trainer.balancing.effect import effects
from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.prediction import iteration_seconds, pruned_share
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.devices.phase_clock import PHASES
from heterotp_trainer.plans.grains import grain_for
from heterotp_trainer.plans.linears import Line, Link
from heterotp_trainer.plans.work_plan import Cause, Piece, WorkPlan
from heterotp_trainer.plans.work_reduction import WorkReduction
from heterotp_trainer.rebalancing.balancer import observation
from hypothesis import given, settings
from support.balancing_world import POLICIES, even_costs, history_of, seen, situations

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
        times["matmul"] = each.executed[rank]
        return Report(7, full=each.full[rank], seconds=dict.fromkeys(PHASES, 0.0) | times)

    return observation([Report.unpack(report(rank).pack()) for rank in range(len(each.full))], each.migrating)


# -- feasible ---------------------------------------------------------------------------------------------


def halves(settings):
    """Return how a policy prunes and how it migrates."""
    semi = settings.semi or Semi()
    return (settings.zero or semi.zero, semi.zero if settings.strategy == "SEMI" else settings.mig or Mig())


def excluded_from_receiving(plan, settings):
    """Return the ranks that compute no columns of others: stragglers, or by eq. 3 as printed those that migrate."""
    if settings.strategy == "SEMI" and settings.semi is not None and settings.semi.split_rule == "equation3":
        return {rank for rank, classes in plan.reductions if any(taken.migrated for taken in classes)}
    return set(plan.stragglers)


def check_feasible(plan, costs, settings):
    receivers, (zero, mig) = [rank for rank, _ in plan.receivers], halves(settings)
    assert set(plan.reductions_by_rank) <= set(plan.stragglers)
    assert len(set(receivers)) == len(receivers)
    assert not set(receivers) & excluded_from_receiving(plan, settings)
    assert pruned_share(costs, plan.reductions_by_rank) <= settings.pruned_share_limit
    for rank, classes in plan.reductions:
        for linears, taken in zip(costs.classes, classes, strict=True):
            whole = linears.columns[rank]
            assert taken.pruned >= 0 and taken.migrated >= 0 and taken.pruned + taken.migrated <= whole
            assert taken.pruned % grain_for(zero.grain, costs.grains[rank], whole) == 0
            assert taken.migrated % grain_for(mig.grain, costs.grains[rank], whole) == 0
            assert taken.pruned <= zero.gamma_max * whole
    for k in range(len(costs.classes)):
        cut = plan.pieces(k)
        assert {piece.receiver for piece in cut} <= set(receivers) and all(piece.columns > 0 for piece in cut)
        for rank, classes in plan.reductions:
            ranges = [(piece.start, piece.stop) for piece in cut if piece.sender == rank]
            assert [column for start, stop in ranges for column in range(start, stop)] == [*range(classes[k].migrated)]


def check_effects(plan, costs):
    shown = effects(plan, costs)
    assert sum(each.columns_out for each in shown) == sum(each.columns_in for each in shown)
    own = [sum(c.operations(rank, c.columns[rank]) for c in costs.classes) for rank in range(costs.ranks)]
    given_away = sum(each.migrated * work for each, work in zip(shown, own, strict=True))
    assert sum(each.received for each in shown) * sum(own) / costs.ranks == pytest.approx(given_away)
    deleted = sum(each.pruned * work for each, work in zip(shown, own, strict=True))
    assert deleted == pytest.approx(pruned_share(costs, plan.reductions_by_rank) * sum(own))


@given(situations())
@THOROUGH
def test_every_plan_is_feasible_and_has_a_reason(situation):
    costs, settings, observed = situation
    for plan in followed(costs, settings, observed):
        check_feasible(plan, costs, settings)
        check_effects(plan, costs)
        assert plan.reason.startswith((settings.strategy, "rank"))
        unit_move = settings.strategy in ("RESHARD", "AUTO")
        if settings.strategy == "None" or (unit_move and not settings.max_pruned_share):
            assert not plan.reductions


@given(situations())
@THOROUGH
def test_all_ranks_decide_the_same_plan(situation):
    costs, settings, observed = situation
    mine = followed(costs, settings, observed)
    assert mine == followed(costs, settings, [packed(each) for each in observed])
    assert [plan.hash for plan in mine] == [plan.hash for plan in followed(costs, settings, observed)]


@given(situations())
@THOROUGH
def test_a_plan_is_kept_while_measurements_do_not_change(situation):
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
    found = iteration_seconds(costs, last, plan.reductions_by_rank, plan.receivers, plan.primitive, min(last.wait))
    assert plan.predicted_seconds == (found if plan.stragglers else None)
    assert found < nothing if plan.reductions else found == nothing


@pytest.mark.parametrize("strategy", ["ZERO", "MIG", "SEMI", "AUTO", "None", "RESHARD"])
def test_the_work_of_a_straggler_is_reduced_by_the_rule_of_the_strategy(strategy):
    settings = policy(strategy, **({"max_pruned_share": 0.5} if strategy == "AUTO" else {}))
    plan = followed(even_costs(8), settings, [seen([4.0] + [1.0] * 7)] * 2)[-1]
    assert plan.stragglers == (0,)
    mine = effects(plan, even_costs(8))[0]
    reduced = {"ZERO": (True, False), "AUTO": (True, False), "MIG": (False, True), "SEMI": (True, True)}
    assert (mine.pruned > 0, mine.migrated > 0) == reduced.get(strategy, (False, False))
    assert plan.reason.startswith("rank 0 is 4.0x slower")


@pytest.mark.parametrize(
    ("zero", "mig", "pruned", "migrated"),
    [(None, 24, 304, 192), (40, None, 80, 400), (40, 24, 120, 360), (None, None, 304, 192)],
    ids=["16-24", "40-16", "40-24", "16-16"],
)
def test_columns_that_semi_prunes_are_whole_blocks(zero, mig, pruned, migrated):
    costs, observed = even_costs(8, columns=1000, grain=16), seen([2.0] + [1.0] * 7)
    for tolerance, split in ((0.02, (pruned, migrated)), (1.0, (0, pruned + migrated))):
        semi = Semi(zero=Zero(grain=zero), mig=Mig(grain=mig), time_tolerance=tolerance)
        plan = followed(costs, policy("SEMI", semi=semi), [observed] * 2)[-1]
        assert plan.reductions == ((0, (WorkReduction(*split),)),)


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
def test_other_stragglers_or_another_slowness_cause_a_new_plan(strategy, after, fields, again):
    settings, costs = policy(strategy, **fields), even_costs(4)
    history = history_of(*[seen([2.0, 1, 1, 1])] * 2)
    plan = decide(history, settings, WorkPlan(), costs)
    history.add(seen([float(full) for full in after]))
    found = decide(history, settings, plan, costs)
    assert (found is not plan) == again
    if again:
        assert found.decision_id == plan.decision_id + 1 and found.basis == tuple(after)
        assert found.stragglers == tuple(rank for rank, full in enumerate(after) if full > 1.3)


def test_another_policy_makes_another_plan():
    costs, history = even_costs(4), history_of(*[seen([2.0, 1, 1, 1])] * 2)
    plan = decide(history, policy("ZERO"), WorkPlan(), costs)
    for other in (policy("ZERO", zero=Zero(imputation="Same")), policy("MIG"), policy("None"), FIXED_MIG):
        found = decide(history, other, plan, costs)
        assert found.settings == other and found.decision_id > plan.decision_id and found.hash != plan.hash
        assert decide(history, other, found, costs) is found


def test_stragglers_are_kept_under_another_policy():
    costs, history = even_costs(4), history_of(*[seen([2.0, 1, 1, 1])] * 2)
    plan = decide(history, policy("ZERO"), WorkPlan(), costs)
    history.add(seen([1.07, 1, 1, 1]))  # between exit and enter
    assert decide(history, policy("ZERO", replan_threshold=0.2), plan, costs).stragglers == (0,)


@pytest.mark.parametrize("observations", [2, 5], ids=["a-window-is-not-full", "two-are"])
def test_stragglers_are_kept_with_another_window(observations):
    costs, history = even_costs(4), history_of(*[seen([2.0, 1, 1, 1])] * observations)
    plan = decide(history, policy("ZERO"), WorkPlan(), costs)
    found = decide(history.resized(3), policy("ZERO", window=3), plan, costs)
    assert (found.stragglers, found.reductions) == ((0,), plan.reductions) and found.decision_id == plan.decision_id + 2


def test_before_a_window_is_full_the_work_stays_as_it_is():
    plan = decide(history_of(seen([9.0, 1, 1, 1]), window=5), policy("ZERO", window=5), WorkPlan(), even_costs(4))
    assert (plan.reductions, plan.reason) == ((), "ZERO: no rank is known to be slow")


def test_the_least_wait_is_learnt_while_nothing_migrates():
    costs, slow = even_costs(4), [8.0, 1, 1, 1]
    history = history_of(*[seen(slow, wait=[0.0, 7.2, 7.1, 7.3])] * 2)
    plan = decide(history, policy("MIG"), WorkPlan(), costs)
    assert plan.migrates and plan.base_wait == 0.0
    history.add(Observation.of([4.0, 1, 1, 1], [0.0] * 4, [0.0] * 4, [0.5] * 4, migrating=True))
    assert decide(history, policy("MIG"), plan, costs).base_wait == 0.0


def test_a_fixed_share_migrates_from_the_first_iteration_on():
    plan = decide(history_of(), FIXED_MIG, WorkPlan(), even_costs(3))
    assert plan.reductions == ((1, (WorkReduction(0, 480),)),)
    assert plan.pieces(0) == (Piece(1, 2, 0, 240), Piece(1, 0, 240, 480))
    assert plan.reason == "MIG: 50% of the columns of rank 1 migrated, as the policy fixes it"


def test_a_single_rank_gets_one_plan_per_policy():
    costs, history = even_costs(1), history_of(seen([1.0]))
    plan = decide(history, policy("ZERO"), WorkPlan(), costs)
    assert (plan.decision_id, plan.cause) == (1, Cause.SINGLE_RANK)
    assert plan.reason == "ZERO: a single rank does not wait for others"
    history.add(seen([9.0]))
    assert decide(history, policy("ZERO"), plan, costs) is plan
    assert decide(history, policy("AUTO"), plan, costs).decision_id == 2


def test_a_candidate_that_is_slower_leaves_the_work_and_predicts_the_seconds_of_all_work():
    costs, history = even_costs(4, allocation=9.0), history_of(*[seen([4.0, 1, 1, 1], unit=0.25)] * 2)
    plan = decide(history, policy("ZERO"), WorkPlan(), costs)
    assert (plan.reductions, plan.cause) == ((), Cause.NO_FASTER_PLAN)
    assert plan.predicted_seconds == pytest.approx(4.25)


@pytest.mark.parametrize(("semi", "migrates"), [({}, False), ({"migrating_stragglers": 1}, True)], ids=str)
def test_a_mandated_candidate_is_taken_although_it_is_slower(semi, migrates):
    slow_link = Link(*[Line(100.0, 1.0)] * 3)
    costs, history = even_costs(4, link=slow_link, allocation=200.0), history_of(*[seen([4.0, 1, 1, 1])] * 2)
    plan = decide(history, policy("SEMI", semi=Semi(**semi)), WorkPlan(), costs)
    assert (plan.migrates, plan.cause) == (migrates, Cause.REDUCED if migrates else Cause.NO_FASTER_PLAN)
