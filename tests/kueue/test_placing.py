"""What a worker group asks of Kueue beside pods: fewer of them where need be, close nodes, a pod group."""

from support.kueue_queue import ACCELERATOR, Workload
from support.queued_job import of_one_group, queued, trains

REQUIRED = "kueue.x-k8s.io/podset-required-topology"


def test_a_group_is_admitted_with_fewer_pods_where_it_allows_that(space, queue):
    team = queue({"any": 3})
    run = space.apply(of_one_group("partial", ranks=4, iterations=30, minPods=2))
    attempt = trains(run)
    assert Workload(run).assigned() == {"only": (team.flavors["any"], 3)}
    assert len(run.pods(attempt)) == 3
    run.reaches(phase="Succeeded")


def test_a_group_lands_in_one_domain_of_the_topology_that_it_requires(space, queue, cluster_scoped):
    levels = [{"nodeLabel": ACCELERATOR}, {"nodeLabel": "kubernetes.io/hostname"}]
    topology = cluster_scoped("topologies", "topology", spec={"levels": levels})
    queue({"any": 3}, topology=topology)
    run = space.apply(of_one_group("close", ranks=3, iterations=30, annotations={REQUIRED: ACCELERATOR}))
    trains(run)
    nodes = {pod["spec"]["nodeName"] for pod in run.pods().values()}
    assert len(nodes) == 1
    run.reaches(phase="Succeeded")


def test_the_way_of_a_pod_group(space, queue):
    """Older versions of Kueue admit a group of gated pods, for which Kueue makes the Workload."""
    team = queue({"any": 2})
    body = queued("grouped", iterations=30)
    body["spec"]["runPolicy"]["gang"]["admission"] = "PodGroup"
    run = space.apply(body)
    assert trains(run) == 1
    team.uses(any=2)
    assert run.reaches(phase="Succeeded")["restarts"] == 0
    team.uses(any=0)
