"""examples/straggler on the cluster: a running job's rank is slowed, reported, gets less work, then all of it again."""

import re

import pytest
import yaml
from support.cluster_job import Job, logs
from support.kube import until
from support.places import ROOT

pytestmark = pytest.mark.e2e
STRAGGLER = ROOT / "examples" / "straggler"
WINDOW = 5  # iterations of a median, in the trainer's status and in the policy
COMPARED = 20  # iterations whose losses are compared, at least
SLOW_RANK = 2
LOSS_TOLERANCE = 1e-4  # relative: sums in another order, and what an optimizer makes of that in so many iterations
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


def uids(run):
    """Return what would change if a pod or a container were started again."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
        for pod in run.pods().values()
    }


def switches(run):
    """Return, per rank, the iteration from which each generation held."""
    found = {}
    for rank, pod in run.pods().items():
        text = logs(run.kube, run.space.name, pod["metadata"]["name"], 2000)
        found[rank] = {int(match[1]): int(match[2]) for match in SWITCHED.finditer(text)}
    return found


def iteration_seconds(run: Job):
    """Wait until rank 0's medians are of iterations that ran since now; return the median."""
    now = run.rank_zero(1)["iteration"]
    return run.trained(1, now + WINDOW + 2)["iterationSeconds"]


def follows(run, strategy):
    """Wait until all ranks follow a strategy; return the generation."""

    def check():
        balancing = run.status.get("balancing", {})
        current = balancing.get("strategy") == strategy and balancing.get("generation") == balancing.get(
            "appliedGeneration"
        )
        return balancing["generation"] if current else None

    return until(lambda: f"{strategy} is followed: {run.status.get('balancing')}", check, 30, 0.1)


def moved(run, times, before):
    """Wait until units have moved so often, and times under the new shares are known; return the status document.

    before: the hidden units that each rank owned before the last move.
    """

    def check():
        document = run.rank_zero(1)
        return document if document and document["moves"] >= times and owned(document) != before else None

    return until(lambda: f"units moved {times} times: {run.rank_zero(1)}", check, 60, 0.2)


def test_a_rank_is_slowed_named_its_work_reduced_and_restored(run, space, policy, measured):
    before, pods = iteration_seconds(run), uids(run)
    injection = slowed_and_named(run, space)
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
    injection = slowed_and_named(run, space)
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
    measured["straggler example, its loss against a run left alone"] = same_loss(run, left_alone(space, last), moved_at)


def left_alone(space, iterations):
    """Run the example as fast as it goes, without slow ranks or balancing; return it after so many iterations."""
    body = example("job")
    body["metadata"] = {"name": "left-alone"}
    body["spec"]["balancing"] = {"policy": {"strategy": "None"}}
    for group in body["spec"]["workerGroups"]:
        group["device"] |= {"teraflops": 100 * group["device"]["teraflops"], "fixedSeconds": 0.0}
    run = space.apply(body)
    run.trained(attempt=1, iteration=iterations)
    return run


def same_loss(run, alone, since):
    """Assert that losses of the same iterations are the same; return by how much they differ at most, in words."""
    common = sorted(run.losses.keys() & alone.losses.keys())
    assert len([iteration for iteration in common if iteration > since]) >= COMPARED, (run.losses, alone.losses)
    apart = {iteration: abs(run.losses[iteration] / alone.losses[iteration] - 1) for iteration in common}
    assert max(apart.values()) < LOSS_TOLERANCE, apart
    return f"{max(apart.values()):.1e} of it at most in {len(common)} iterations up to {common[-1]}"


def slowed_and_named(run, space):
    """Slow a rank as the example does; wait until it is measured and named; return the injection."""
    node = run.pods()[SLOW_RANK]["spec"]["nodeName"]
    injection = space.put(example("injection"))
    until(lambda: injection.status, lambda: _measured(injection), 60, 0.2)
    (row,) = injection.status["ranks"]
    assert (row["rank"], row["asked"]) == (SLOW_RANK, 4)
    assert abs(row["measured"] - 4) <= 0.15 * 4
    assert injection.status["phase"] == "Injecting"
    named = re.compile(rf"rank {SLOW_RANK} on node {re.escape(node)} is ([\d.]+)x slower")

    def told():
        """Return whether the condition tells the injected chi: a busy machine slows ranks of itself, too."""
        found = named.search(run.condition("Straggling").get("message", ""))
        return found is not None and abs(float(found[1]) - 4) <= 0.15 * 4

    until(lambda: run.status, told, 60, 0.2)
    assert run.condition("Straggling")["status"] == "True"
    return injection


def nothing_restarted(run, pods):
    """Assert that pods, attempt and iterations are those of one gang that never stopped."""
    assert uids(run) == pods
    assert run.status["attempt"] == 1
    iterations = [iteration for _, iteration in run.seen]
    assert iterations == sorted(iterations), "no iteration was lost"
    counts = [run.rank_zero(1)["iteration"], *(counted(run, rank) for rank in range(4))]
    assert max(counts) - min(counts) <= 8, counts  # they are asked one after the other; a restart would lose more


def _even_again(run):
    """Return the generation that neither slows a rank nor reduces its work, once all follow it."""
    balancing, zero = run.status.get("balancing", {}), run.rank_zero(1)
    followed = balancing.get("policy") == "default" and balancing.get("generation") == balancing.get(
        "appliedGeneration"
    )
    return balancing["generation"] if followed and zero is not None and not zero["injections"] else None


def _measured(injection):
    rows = injection.status.get("ranks") or [{}]
    return abs((rows[0].get("measured") or 0) - 4) <= 0.15 * 4


def owned(document):
    """Return how many hidden units each rank owns."""
    return [rank["hiddenUnits"] for rank in document["ranks"]]


def row_with_shares(run, rank, document):
    """Return a rank's row in the job's status once it has the shares of a status document."""
    row = run.status["ranks"][rank]
    return row if row.get("hiddenUnits") == document["ranks"][rank]["hiddenUnits"] and row.get("slowdown") else None


def counted(run, rank):
    """Return the iterations that a rank's own counter shows."""
    text = run.ask(run.pods()[rank]["metadata"]["name"], "/metrics")
    return int(float(re.search(r'heterotp_iterations_total\{rank="\d+"\} ([\d.e+]+)', text)[1]))
