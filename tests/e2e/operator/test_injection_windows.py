"""When injections hold on a cluster: turns, starts, stops, restarts, a job that goes, an operator that goes."""

import pytest
from heterotp_api import names
from support.cluster_job import two_ranks
from support.kube import until

pytestmark = pytest.mark.e2e
CHI = 3
LEFT_ALONE = {"policy": {"strategy": "None"}}  # AUTO would move the units of a slow rank to the other


def injection(name, job, **spec):
    given = {"jobRef": {"name": job}, "targets": {"ranks": [0, 1]}, "slowdown": CHI, **spec}
    return {"apiVersion": names.API_VERSION, "kind": "StragglerInjection", "metadata": {"name": name}, "spec": given}


def struck(thing):
    """Return the ranks that are slowed now by an injection's status."""
    return tuple(sorted(row["rank"] for row in thing.status.get("ranks", ()) if row.get("since")))


def phase(thing, wanted):
    until(lambda: f"{thing.name} is {wanted}: {thing.status}", lambda: thing.status.get("phase") == wanted, every=0.2)


def test_turns_starts_and_stops(space):
    run = space.apply(two_ranks("turns", iterations=3000, seconds=0.1, balancing=LEFT_ALONE))
    run.trained(attempt=1, iteration=5)
    turning = space.put(
        injection("turning", "turns", pattern={"roundRobin": {"every": {"iterations": 30}}}, stop={"seconds": 25})
    )
    seen = set()
    until(lambda: f"both take turns: {seen}", lambda: seen.add(struck(turning)) or {(0,), (1,)} <= seen, 60, 0.1)
    assert seen <= {(), (0,), (1,)}
    phase(turning, "Finished")
    assert {row["message"] for row in turning.status["ranks"]} == {"its stop has come"}

    start = run.rank_zero(1)["iteration"] + 60
    late = space.put(injection("late", "turns", start={"iteration": start}, stop={"iteration": start + 80}))
    until(lambda: late.status, lambda: _message(late) == "its start has not come yet", 30, 0.1)
    assert late.status["phase"] == "Pending"
    phase(late, "Injecting")
    assert run.rank_zero(1)["iteration"] >= start
    phase(late, "Finished")


def _message(thing):
    return (thing.status.get("ranks") or [{}])[0].get("message")


def test_an_injection_stays_with_its_rank_over_a_restart_and_waits_when_the_job_is_gone(space):
    space.claim()
    run = space.apply(two_ranks("again", iterations=3000, checkpoint={"everyIterations": 20}, balancing=LEFT_ALONE))
    run.trained(attempt=1, iteration=25)
    slow = space.put(injection("slow", "again", targets={"workerGroups": ["slow"]}))
    phase(slow, "Injecting")
    assert struck(slow) == (1,)
    until("an age", lambda: (run.rank_zero(1)["injections"] or [{}])[0].get("seconds", 0) > 3, 60, 0.2)
    saved = run.rank_zero(1)["iteration"]
    run.trained(attempt=1, iteration=(saved // 20 + 1) * 20 + 5)
    space.kube.delete("pods", space.name, run.pods(1)[1]["metadata"]["name"], gracePeriodSeconds=0)
    run.trained(attempt=2, iteration=1)
    listed = until("the new gang has the injection", lambda: (run.rank_zero(2) or {}).get("injections"), 60, 0.2)
    assert listed[0]["seconds"] > 3  # it goes on, it does not begin anew
    phase(slow, "Injecting")
    assert struck(slow) == (1,)
    until(lambda: slow.status, lambda: abs((slow.status.get("measured") or 0) - CHI) < 0.15 * CHI, 60, 0.2)
    space.kube.delete("heterotpjobs", space.name, "again")
    phase(slow, "Pending")
    assert "there is no such HeteroTPJob" in slow.status["message"]


def test_without_an_operator_injections_end_with_their_lease_and_the_policy_stays(space, release):
    policy = {"strategy": "ZERO", "zero": {"fixedRatio": 0.5, "ranks": [1]}}
    run = space.apply(two_ranks("leased", iterations=6000, balancing={"policy": policy}))
    run.trained(attempt=1, iteration=5)
    slow = space.put(injection("slow", "leased", targets={"ranks": [1]}))
    phase(slow, "Injecting")
    release.scale(0)
    try:
        lapsed = lambda: (run.rank_zero(1) or {}).get("leaseExpired")  # noqa: E731
        until(lambda: f"the lease ends: {run.rank_zero(1)}", lapsed, 60, 0.2)
        document = run.rank_zero(1)
        assert [each["state"] for each in document["injections"]] == ["lapsed"]
        assert [rank["injectedSlowdown"] for rank in document["ranks"]] == [1, 1]
        assert document["ranks"][1]["prunedRatio"] > 0.3
    finally:
        release.scale(2)
    # an operator is there again that can end it
    until(lambda: run.rank_zero(1), lambda: (run.rank_zero(1) or {}).get("leaseExpired") is False, 60, 0.2)
    until(lambda: slow.status, lambda: struck(slow) == (1,), 60, 0.2)
