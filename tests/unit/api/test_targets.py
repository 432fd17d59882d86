"""Targets of an injection become ranks of a job; a policy's ranks are ranks that the job has."""

import pytest
from heterotp_api.injection import Targets
from heterotp_api.load import parse_object
from heterotp_api.policy import BalancingSettings, policy_problem
from heterotp_api.ranks import rank_table
from heterotp_api.targets import TargetError, resolve
from support.manifest_table import manifest

PLACES = rank_table(parse_object(manifest({"patch": {}})).spec)  # ranks 0 .. 2 are fast, rank 3 is slow
NODES = {0: "a", 1: "b", 2: "a", 3: "c"}


def ranks_of(targets, nodes=NODES):
    return resolve(Targets.model_validate(targets), PLACES, nodes)


@pytest.mark.parametrize(
    ("targets", "ranks"),
    [
        ({"ranks": [3, 1]}, [3, 1]),
        ({"workerGroups": ["slow"]}, [3]),
        ({"workerGroups": ["slow", "fast"]}, [0, 1, 2, 3]),
        ({"nodes": ["a"]}, [0, 2]),
        ({"nodes": ["c", "a", "elsewhere"]}, [0, 2, 3]),
        ({"count": 4}, [0, 1, 2, 3]),
    ],
    ids=str,
)
def test_targets(targets, ranks):
    assert ranks_of(targets) == ranks


def test_a_draw_is_of_distinct_ranks_and_its_seed_decides_it():
    draws = [tuple(ranks_of({"count": 2, "seed": seed})) for seed in range(20)]
    assert draws == [tuple(ranks_of({"count": 2, "seed": seed})) for seed in range(20)]
    assert all(a < b for a, b in draws)
    assert len(set(draws)) > 3
    assert ranks_of({"count": 2}) == ranks_of({"count": 2, "seed": 0})


@pytest.mark.parametrize(
    ("targets", "nodes", "words"),
    [
        ({"ranks": [0, 4]}, NODES, "spec.targets.ranks: 4: the job has ranks 0 .. 3"),
        (
            {"workerGroups": ["fast", "new"]},
            NODES,
            "spec.targets.workerGroups: 'new': the job has the groups fast, slow",
        ),
        ({"count": 5}, NODES, "spec.targets.count: 5: the job has 4 ranks"),
        ({"nodes": ["x", "y"]}, NODES, "spec.targets.nodes: x, y: no rank of the job runs there"),
        ({"nodes": ["a"]}, None, "spec.targets.nodes: a: it is not known which ranks run there"),
    ],
    ids=["rank", "group", "count", "node", "nodes unknown"],
)
def test_what_the_job_does_not_have(targets, nodes, words):
    with pytest.raises(TargetError) as error:
        ranks_of(targets, nodes)
    assert str(error.value) == words
    assert f"{error.value.field}: {error.value.problem}" == words
    assert error.value.field in ("spec.targets." + name for name in ("ranks", "workerGroups", "count", "nodes"))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"strategy": "ZERO", "zero": {"fixedRatio": 0.5, "ranks": [0, 1, 2, 3]}}, None),
        ({"strategy": "ZERO", "zero": {"fixedRatio": 0.5, "ranks": [7, 9]}}, "zero.ranks: 7: the job has ranks 0 .. 3"),
        ({"strategy": "MIG", "mig": {"fixedRatio": 0.5, "ranks": [0, 1, 2]}}, None),
        ({"strategy": "MIG", "mig": {"fixedRatio": 0.5, "ranks": [4]}}, "mig.ranks: 4: the job has ranks 0 .. 3"),
        (
            {"strategy": "MIG", "mig": {"fixedRatio": 0.5, "ranks": [0, 1, 2, 3]}},
            "mig.ranks: all 4 ranks: leave one that takes their work",
        ),
        ({"strategy": "RESHARD", "reshard": {"evict": [5]}}, "reshard.evict: 5: the job has ranks 0 .. 3"),
        (
            {"strategy": "AUTO", "reshard": {"evict": [3, 2, 1, 0]}},
            "reshard.evict: all 4 ranks: leave one that takes their work",
        ),
        ({"strategy": "SEMI", "semi": {}}, None),
    ],
    ids=str,
)
def test_ranks_of_a_policy(settings, problem):
    assert policy_problem(BalancingSettings.model_validate(settings), 4) == problem


def test_a_single_rank_balances_nothing():
    fixed = BalancingSettings.model_validate({"strategy": "ZERO", "zero": {"fixedRatio": 0.5, "ranks": [0]}})
    words = "zero.ranks: a job of a single rank balances nothing: take two ranks or more"
    assert policy_problem(fixed, 1) == words
    assert policy_problem(BalancingSettings(strategy="ZERO"), 1) is None
