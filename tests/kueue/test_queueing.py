"""Jobs wait for quota, take it, and give it back, as Kueue's own controller counts it."""

from support.kube import until
from support.kueue_queue import ACCELERATOR, Workload
from support.queued_job import queued, trains, waits, without_node_selectors


def test_a_job_waits_behind_the_quota_and_starts_when_the_first_one_ends(space, queue):
    team = queue({"any": 2})
    first = space.apply(queued("first", iterations=150))
    trains(first)
    second = space.apply(queued("second", iterations=20))
    waits(second)
    assert not second.pods() and first.status["phase"] == "Running"
    first.reaches(phase="Succeeded")
    second.reaches(phase="Succeeded")
    for run in (first, second):
        Workload(run).reaches(Finished="True")
    team.uses(any=0)


def test_ranks_land_on_the_nodes_of_the_flavors_that_they_were_assigned(space, queue):
    team = queue({"a100": 1, "p100": 1})
    run = space.apply(without_node_selectors(queued("unlike", iterations=30)))
    trains(run)
    assert Workload(run).assigned() == {"fast": (team.flavors["a100"], 1), "slow": (team.flavors["p100"], 1)}
    team.uses(a100=1, p100=1)
    selectors = {rank: pod["spec"]["nodeSelector"][ACCELERATOR] for rank, pod in run.pods().items()}
    assert selectors == {0: "a100", 1: "p100"}
    nodes = {rank: space.kube.get("nodes", None, pod["spec"]["nodeName"]) for rank, pod in run.pods().items()}
    assert {rank: node["metadata"]["labels"][ACCELERATOR] for rank, node in nodes.items()} == selectors
    run.reaches(phase="Succeeded")


def test_a_stopped_queue_holds_new_jobs_and_leaves_running_ones(space, queue):
    team = queue({"any": 4})
    running = space.apply(queued("running"))
    attempt = trains(running)
    team.stop("Hold")
    until("the queue is stopped", lambda: not team.active())
    held = space.apply(queued("held", iterations=20))
    waits(held)
    trains(running, attempt=attempt, iteration=running.trained(attempt, 1)["iteration"] + 5)
    assert not held.pods()
    team.stop("None")
    held.reaches(phase="Succeeded")
    assert (running.status["phase"], running.attempt) == ("Running", attempt)


def test_a_suspended_job_gives_its_quota_back_and_takes_it_again(space, queue):
    team = queue({"any": 2})
    paused = space.apply(queued("paused"))
    attempt = trains(paused)
    other = space.apply(queued("other"))
    waits(other)
    paused.edit({"runPolicy": {"suspend": True}})
    paused.reaches(phase="Suspended")
    trains(other)
    team.uses(any=2)

    paused.edit({"runPolicy": {"suspend": False}})
    waits(paused)
    other.delete()
    assert trains(paused) == attempt + 1


def test_a_deleted_job_gives_its_quota_back(space, queue):
    team = queue({"any": 2})
    run = space.apply(queued("gone"))
    assert trains(run) == 1
    team.uses(any=2)
    run.delete()
    team.uses(any=0)
    until("no workload is left", lambda: not Workload(run).body)


def test_kueues_manager_dies_and_comes_back(space, queue, manager):
    """What runs goes on; what is made meanwhile is admitted later."""
    team = queue({"any": 4})
    running = space.apply(queued("running"))
    attempt = trains(running)
    gang = {pod["metadata"]["uid"] for pod in running.pods().values()}
    manager.kill()
    late = space.apply(queued("late", iterations=20))
    trains(running, attempt=attempt, iteration=running.trained(attempt, 1)["iteration"] + 20)
    assert not late.pods()

    manager.start()
    late.reaches(phase="Succeeded")
    assert {pod["metadata"]["uid"] for pod in running.pods().values()} == gang
    team.uses(any=2)
