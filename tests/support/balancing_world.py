"""Ranks, linears and what they take, as decisions see them: plain ones for numbers, random ones for hypothesis."""

from heterotp_api.policy import BalancingSettings
from heterotp_trainer.balancing.history import History, Observation
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve, Line, LinearClass, Link
from hypothesis import strategies as st


def even_costs(ranks, columns=960, outputs=32, rows=8, grain=1, parallel="column", **more):
    """Return equal ranks with one linear of a straight curve: one second with all columns."""
    linears = LinearClass("fc", parallel, (columns,) * ranks, (outputs,) * ranks, rows, 1)
    curve = Curve((0.0, float(columns)), (0.0, 1.0))
    return Costs((linears,), ((curve,),) * ranks, (grain,) * ranks, **more)


def seen(full, unit=0.0, fixed=0.0, wait=0.0):
    """Return an observation; a number stands for the same on every rank."""
    others = [list(v) if isinstance(v, (list, tuple)) else [v] * len(full) for v in (unit, fixed, wait)]
    return Observation.of(list(full), *others)


def history_of(*observations, window=1):
    """Return a history that took these, oldest first."""
    history = History(window)
    for each in observations:
        history.add(each)
    return history


def line(most):
    return st.builds(Line, st.floats(0, most), st.floats(0, most).map(lambda slope: slope * 1e-3))


LINKS = st.builds(Link, line(1e-2), line(1e-2), line(1e-2))


@st.composite
def curves(draw, columns):
    """Draw a curve that never falls: a part that does not shrink with the columns, flat stretches, bends."""
    if not columns:
        return Curve((0.0, 1.0), (0.0, 0.0))
    measured = draw(st.sampled_from([(4, 2, 1), (2, 1), (1,)]))  # ranks may have measured at unlike points
    points = sorted({max(1, columns // part) for part in measured})
    seconds, now = [], draw(st.floats(0, 0.3))
    for _ in points:
        now += draw(st.sampled_from([0.0, 0.01, 0.2, 0.5]))
        seconds.append(now + 0.01)
    return Curve((0.0, *map(float, points)), (0.0, *seconds))


@st.composite
def all_costs(draw, kinds=("column", "row"), most_ranks=6):
    """Draw the costs of unequal ranks: uneven shards, some of them empty, several classes of linears."""
    ranks = draw(st.integers(2, most_ranks))
    classes, by_rank = [], [[] for _ in range(ranks)]
    for number in range(draw(st.integers(1, 3))):
        parallel = draw(st.sampled_from(kinds))
        shards = draw(st.lists(st.sampled_from([0, 8, 24, 40, 96]), min_size=ranks, max_size=ranks))
        width = (draw(st.sampled_from([16, 50, 128])),) * ranks
        columns, outputs = (width, tuple(shards)) if parallel == "column" else (tuple(shards), width)
        rows, calls = draw(st.integers(1, 64)), draw(st.integers(1, 3))
        classes.append(LinearClass(f"linear{number}", parallel, columns, outputs, rows, calls))
        for rank in range(ranks):
            by_rank[rank].append(draw(curves(columns[rank] if outputs[rank] else 0)))
    grains = tuple(draw(st.lists(st.sampled_from([1, 4, 16, 64]), min_size=ranks, max_size=ranks)))
    small = st.floats(0, 0.05)
    return Costs(
        tuple(classes),
        tuple(map(tuple, by_rank)),
        grains,
        draw(LINKS),
        draw(st.sampled_from([2, 4])),
        draw(small),
        draw(st.builds(Line, small, small)),
    )


CHI = st.sampled_from([1.0, 1.0, 1.0, 1.2, 1.5, 2.0, 4.0, 8.0])
SHORT = st.floats(0, 0.5)


@st.composite
def observations(draw, costs):
    """Draw what an iteration took: some ranks are slowed, all times differ."""
    full = [costs.full_seconds(rank) * draw(CHI) * draw(st.floats(0.95, 1.05)) for rank in range(costs.ranks)]
    rest = [draw(st.lists(SHORT, min_size=costs.ranks, max_size=costs.ranks)) for _ in range(3)]
    return Observation.of(full, *rest)


def _blocks(name, **fields):
    """Draw a block of a policy under its name."""
    return st.fixed_dictionaries({}, optional=fields).map(lambda block: {name: block})


GRAIN = st.sampled_from([1, 3, 8, 24, 500])
SHARE = st.floats(0, 1)
ZERO = {
    "selection": st.sampled_from(["Rd", "Pri", "PriDiffE", "PriDiffR"]),
    "criterion": st.sampled_from(["minimum", "average"]),
    "times": st.sampled_from(["fullWork", "measured"]),
    "gamma_by": st.sampled_from(["curve", "time"]),
    "gamma_max": SHARE,
    "grain": GRAIN,
}
MIG = {
    "primitive": st.sampled_from(["broadcastReduce", "scatterGather"]),
    "target": st.sampled_from(["commonTime", "minimum"]),
    "parts": st.sampled_from(["bySpeed", "equal"]),
    "grain": GRAIN,
}
SEMI = {
    "zero": st.fixed_dictionaries(
        {}, optional={key: ZERO[key] for key in ("selection", "times", "gamma_by", "gamma_max", "grain")}
    ),
    "mig": st.fixed_dictionaries({}, optional=MIG),
    "beta_rule": st.sampled_from(["leastDeletion", "costBalance", "equation2"]),
    "split_rule": st.sampled_from(["leastDeletion", "equation3"]),
    "time_tolerance": st.floats(0, 2),
    "migrating_stragglers": st.integers(0, 7),
}


def _policy(strategy, block, **more):
    fields = {"strategy": st.just(strategy), "window": st.integers(1, 4), **more}
    return st.tuples(st.fixed_dictionaries(fields), block).map(lambda two: BalancingSettings(**two[0], **two[1]))


LIMIT = {"max_pruned_share": st.none() | SHARE}
POLICIES = {
    "ZERO": _policy("ZERO", _blocks("zero", **ZERO), **LIMIT),
    "MIG": _policy("MIG", _blocks("mig", **MIG)),
    "SEMI": _policy("SEMI", _blocks("semi", **SEMI), **LIMIT),
    "AUTO": _policy("AUTO", _blocks("zero", **ZERO), **LIMIT),
    "None": _policy("None", st.just({})),
    "RESHARD": _policy("RESHARD", st.just({}), **LIMIT),
}


@st.composite
def situations(draw, strategies=(*POLICIES, "SEMI", "SEMI")):
    """Draw costs, a policy, and the observations of up to three windows."""
    costs = draw(all_costs())
    policy = draw(st.sampled_from(strategies).flatmap(POLICIES.__getitem__))
    count = draw(st.integers(1, 3 * policy.window))
    base = draw(observations(costs))
    taken = [base] * count if draw(st.booleans()) else [draw(observations(costs)) for _ in range(count)]
    return costs, policy, taken
