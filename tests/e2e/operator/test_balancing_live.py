"""examples/straggler on the cluster: a running job's rank is slowed, reported, gets less work, then all of it again."""

import re

import pytest
import yaml
from support.cluster_job import logs
from support.kube import until
from support.live_balancing import (
    COMPARED,
    WINDOW,
    follows,
    iteration_seconds,
    left_alone,
    moved,
    nothing_restarted,
    owned,
    row_with_shares,
    same_loss,
    slowed_and_named,
    uids,
)
from support.places import ROOT

pytestmark = pytest.mark.e2e
STRAGGLER = ROOT / "examples" / "straggler"
SLOW_RANK = 2
SWITCHED = re.compile(r"control document (\d+) in force from iteration (\d+) on: strategy (\w+), (\d+) injections")


def example(name):
    return yaml.safe_load((STRAGGLER / f"{name}.yaml").read_text())


@pytest.fixture
def policy(space):
    return space.put(example("watch"))


@pytest.fixture
def run(space, policy):
    run = space.apply(example("job"))
    run.trained(attempt=1, iteration=4 * WINDOW)
    return run


def switches(run):
    """Return, per rank, the iteration from which each generation held."""
    found = {}
    for rank, pod in run.pods().items():
        text = logs(run.kube, run.space.name, pod["metadata"]["name"], 2000)
        found[rank] = {int(match[1]): int(match[2]) for match in SWITCHED.finditer(text)}
    return found


def test_a_rank_is_slowed_named_its_work_reduced_and_restored(run, space, policy, measured):
    before, pods = iteration_seconds(run), uids(run)
    injection = slowed_and_named(run, space, example("injection"))
    slowed = iteration_seconds(run)
    assert slowed > 2 * before

    policy.edit(example("policy")["spec"])
    generation = follows(run, "ZERO")
    until(lambda: run.status["ranks"][SLOW_RANK], lambda: run.status["ranks"][SLOW_RANK].get("prunedRatio"), 60, 0.2)
    balanced = iteration_seconds(run)
    assert balanced < 0.6 * slowed
    until(lambda: policy.status, lambda: policy.status.get("appliedJobs") == 1, 30, 0.2)
    assert policy.status["selectedJobs"] == 1
    until(lambda: policy.status, lambda: (policy.status.get("savedSeconds") or 0) > 0, 30, 0.2)
    moments = switches(run)
    assert len(moments) == 4
    assert len({per_rank[generation] for per_rank in moments.values()}) == 1, moments

    injection.delete()
    until(lambda: run.rank_zero(1), lambda: not (run.rank_zero(1) or {"injections": True})["injections"], 30, 0.1)
    policy.delete()  # only now, or AUTO, which takes over, would move the work of a rank that is still slow
    last = until(lambda: run.status["balancing"], lambda: _even_again(run), 60, 0.1)
    moments = switches(run)
    (since,) = {per_rank[last] for per_rank in moments.values()}
    # plain medians of a window from the switch on: two windows later nothing else is in them
    document = run.trained(1, since + 2 * WINDOW)
    assert document["iterationSeconds"] < 1.15 * before
    assert max(rank["prunedRatio"] for rank in document["ranks"]) == 0
    assert max(rank["injectedSlowdown"] for rank in document["ranks"]) == 1
    until(lambda: run.status, lambda: run.condition("Straggling").get("status") == "False", 30, 0.2)
    nothing_restarted(run, pods)
    times = {"before": before, "slowed": slowed, "balanced": balanced, "after": document["iterationSeconds"]}
    measured.update({f"straggler example, an iteration {what}": seconds for what, seconds in times.items()})


def test_auto_moves_the_work_of_a_slow_rank_and_brings_it_back(run, space, policy, measured):
    before, pods, first = iteration_seconds(run), uids(run), owned(run.rank_zero(1))
    injection = slowed_and_named(run, space, example("injection"))
    slowed = iteration_seconds(run)
    policy.delete()
    follows(run, "AUTO")
    document = moved(run, 1, first)
    moved_at = document["iteration"]
    assert owned(document)[SLOW_RANK] < first[SLOW_RANK] / 2
    assert max(rank["prunedRatio"] for rank in document["ranks"]) == 0
    until(lambda: run.status, lambda: run.condition("Straggling").get("status") == "False", 30, 0.2)
    row = until(lambda: run.status["ranks"], lambda: row_with_shares(run, SLOW_RANK, document), 30, 0.2)
    assert abs(row["slowdown"] - 4) <= 0.25 * 4 and not row["straggler"]
    resharded = iteration_seconds(run)
    assert resharded < 0.6 * slowed
    limit = run.rank_zero(1)["limitIterationSeconds"]

    injection.delete()
    document = moved(run, 2, owned(document))
    assert owned(document)[SLOW_RANK] > 0.6 * first[SLOW_RANK]  # speeds are known roughly, on shared cores
    after = iteration_seconds(run)
    assert after < 1.25 * before
    nothing_restarted(run, pods)
    measured["straggler example, an iteration under AUTO"] = resharded
    measured["straggler example, the fluid limit then"] = limit
    last = run.trained(1, moved_at + 2 * COMPARED)["iteration"]  # not every iteration's loss is seen
    run.delete()
    alone = left_alone(space, example("job"), last)
    measured["straggler example, its loss against a run left alone"] = same_loss(run, alone, moved_at)


def _even_again(run):
    """Return the generation that neither slows a rank nor reduces its work, once all follow it."""
    balancing, zero = run.status.get("balancing", {}), run.rank_zero(1)
    followed = balancing.get("policy") == "default" and balancing.get("generation") == balancing.get(
        "appliedGeneration"
    )
    return balancing["generation"] if followed and zero is not None and not zero["injections"] else None
