"""A running job on the cluster whose rank is slowed, named, relieved and restored, and the same job left alone."""

import copy
import re

from support.cluster_job import Job
from support.kube import until

WINDOW = 5  # iterations of a median, in the trainer's status and in the policy
COMPARED = 20  # iterations whose losses are compared, at least
LOSS_TOLERANCE = 1e-4  # relative: sums in another order, and what an optimizer makes of that in so many iterations


def uids(run):
    """Return what would change if a pod or a container were started again."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
        for pod in run.pods().values()
    }


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


def owned(document, family="hiddenUnits"):
    """Return how many units of a family each rank owns."""
    return [rank[family] for rank in document["ranks"]]


def moved(run, times, before):
    """Wait until units have moved so often, and times under the new shares are known; return the status document.

    before: the hidden units that each rank owned before the last move.
    """

    def check():
        document = run.rank_zero(1)
        return document if document and document["moves"] >= times and owned(document) != before else None

    return until(lambda: f"units moved {times} times: {run.rank_zero(1)}", check, 60, 0.2)


def slowed_and_named(run, space, body):
    """Make an injection that slows one rank; wait until it is measured and the rank is named; return the injection.

    The slowed rank is the first of its pod.
    """
    (slow_rank,), chi = body["spec"]["targets"]["ranks"], body["spec"]["slowdown"]
    node = run.pods()[slow_rank]["spec"]["nodeName"]
    injection = space.put(body)
    until(lambda: injection.status, lambda: _measured(injection, chi), 60, 0.2)
    (row,) = injection.status["ranks"]
    assert (row["rank"], row["asked"]) == (slow_rank, chi)
    assert _is(row["measured"], chi)
    assert injection.status["phase"] == "Injecting"
    named = re.compile(rf"rank {slow_rank} on node {re.escape(node)} is ([\d.]+)x slower")

    def told():
        """Return whether the condition tells the injected chi: a busy machine slows ranks of itself, too."""
        found = named.search(run.condition("Straggling").get("message", ""))
        return found is not None and _is(float(found[1]), chi)

    until(lambda: run.status, told, 60, 0.2)
    assert run.condition("Straggling")["status"] == "True"
    return injection


def _measured(injection, chi):
    rows = injection.status.get("ranks") or [{}]
    return _is(rows[0].get("measured") or 0, chi)


def _is(measured, chi):
    return abs(measured - chi) <= 0.15 * chi


def row_with_shares(run, rank, document):
    """Return a rank's row in the job's status once it has the shares of a status document."""
    row = run.status["ranks"][rank]
    return row if row.get("hiddenUnits") == document["ranks"][rank]["hiddenUnits"] and row.get("slowdown") else None


def nothing_restarted(run, pods):
    """Assert that pods, attempt and iterations are those of one gang that never stopped."""
    assert uids(run) == pods
    assert run.status["attempt"] == 1
    iterations = [iteration for _, iteration in run.seen]
    assert iterations == sorted(iterations), "no iteration was lost"
    counts = [run.rank_zero(1)["iteration"], *(_counted(run, rank) for rank in run.pods())]
    assert max(counts) - min(counts) <= 8, counts  # they are asked one after the other; a restart would lose more


def _counted(run, rank):
    """Return the iterations that a rank's own counter shows."""
    text = run.ask(run.pods()[rank]["metadata"]["name"], "/metrics")
    return int(float(re.search(r'heterotp_iterations_total\{rank="\d+"\} ([\d.e+]+)', text)[1]))


def left_alone(space, body, iterations):
    """Run a job as fast as it goes, without slow ranks or balancing; return it after so many iterations."""
    body = copy.deepcopy(body)
    body["metadata"] = {"name": "left-alone"}
    body["spec"]["balancing"] = {"policy": {"strategy": "None"}}
    for group in body["spec"]["workerGroups"]:
        group["device"] |= {"teraflops": 100 * group["device"]["teraflops"], "fixedSeconds": 0.0}
    run = space.apply(body)
    run.trained(attempt=1, iteration=iterations)
    return run


def same_loss(run, alone, since):
    """Assert that losses of the same iterations are the same, COMPARED of them after iteration `since`.

    Return by how much they differ at most, in words.
    """
    common = sorted(run.losses.keys() & alone.losses.keys())
    assert len([iteration for iteration in common if iteration > since]) >= COMPARED, (run.losses, alone.losses)
    apart = {iteration: abs(run.losses[iteration] / alone.losses[iteration] - 1) for iteration in common}
    assert max(apart.values()) < LOSS_TOLERANCE, apart
    return f"{max(apart.values()):.1e} of it at most in {len(common)} iterations up to {common[-1]}"
