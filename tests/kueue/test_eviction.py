"""Kueue takes a running job's place away: its gang ends with a checkpoint, and the job returns and goes on from it."""

from support.kueue_queue import Workload
from support.queued_job import ONLY_AT_ITS_END, queued, trains, waits


def goes_on_from_its_checkpoint(run, attempt, reached):
    """Wait until the next attempt trains; it began where the evicted one ended."""
    document = run.trained(attempt, 1)
    assert document["resumedFrom"] >= reached
    run.trained(attempt, document["resumedFrom"] + 1)
    assert all(iteration >= reached for seen, iteration in run.seen if seen == attempt)
    assert run.status["restarts"] == 0  # an eviction is no failure


def test_a_job_of_higher_priority_preempts_and_the_other_returns_to_its_checkpoint(space, queue, cluster_scoped):
    urgent = cluster_scoped("workloadpriorityclasses", "urgent", value=1000)
    team = queue({"any": 2}, preemption={"withinClusterQueue": "LowerPriority"})
    space.claim()
    patient = space.apply(queued("patient", checkpoint=ONLY_AT_ITS_END))
    attempt = trains(patient, iteration=10)

    first = space.apply(queued("first", iterations=60, priority=urgent))
    trains(first)
    waits(patient)
    Workload(patient).reaches(QuotaReserved="False")
    assert (patient.status["restarts"], patient.pods()) == (0, {})
    first.reaches(phase="Succeeded")
    goes_on_from_its_checkpoint(patient, attempt + 1, reached=10)
    team.uses(any=2)


def test_a_deactivated_workload_ends_the_gang_with_a_checkpoint(space, queue):
    team = queue({"any": 2})
    space.claim()
    run = space.apply(queued("switched", checkpoint=ONLY_AT_ITS_END))
    attempt = trains(run, iteration=10)
    Workload(run).activate(False)
    waits(run)
    team.uses(any=0)
    Workload(run).activate(True)
    goes_on_from_its_checkpoint(run, attempt + 1, reached=10)


def test_a_drained_queue_ends_the_gang_with_a_checkpoint(space, queue):
    team = queue({"any": 2})
    space.claim()
    run = space.apply(queued("drained", checkpoint=ONLY_AT_ITS_END))
    attempt = trains(run, iteration=10)
    team.stop("HoldAndDrain")
    waits(run)
    team.uses(any=0)
    team.stop("None")
    goes_on_from_its_checkpoint(run, attempt + 1, reached=10)
