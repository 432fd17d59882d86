"""The plain objects of Kubernetes in examples/, and those that the operator makes of a job, fit every version."""

import pytest
import yaml
from heterotp_operator.reconcile.network_peers import NetworkPeers
from support.admitting_kueue import admit
from support.kubernetes_schemas import VERSIONS, complaints
from support.places import ROOT
from support.reconcile_world import Settings, World, manifest

EXAMPLES = ROOT / "examples"
BODIES = {
    str(path.relative_to(EXAMPLES)): list(yaml.safe_load_all(path.read_text())) for path in EXAMPLES.rglob("*.yaml")
}
JOBS = {name: body for name, bodies in sorted(BODIES.items()) for body in bodies if body["kind"] == "HeteroTPJob"}
PEERS = {"operator": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"a": "operator"}}}], "scrapers": []}
OTHERS = {"PodGroup", "Workload"}  # not Kubernetes' own


def made_of(job):
    """Return what the operator makes of an example's job, with network policies on."""
    body = {**manifest(job["metadata"]["name"]), "spec": job["spec"]}
    world = World(body, settings=Settings(network_peers=NetworkPeers.model_validate(PEERS)))
    world.settle()
    if "Workload" in world.objects:
        admit(world)
        world.settle()
    return [*world.pods.values(), *(each for kind, each in world.objects.items() if kind not in OTHERS)]


@pytest.mark.parametrize("name", JOBS)
def test_what_the_operator_makes_of_an_example_fits_every_version(name):
    made = made_of(JOBS[name])
    assert {"Pod", "Service", "ConfigMap", "NetworkPolicy"} == {each["kind"] for each in made}
    assert {version: complaints(made, version) for version in VERSIONS} == {version: {} for version in VERSIONS}


def test_plain_objects_of_the_examples_fit_every_version():
    plain = [each for bodies in BODIES.values() for each in bodies if "." not in each["apiVersion"]]
    assert [each["kind"] for each in plain] == ["PersistentVolumeClaim"]
    assert {version: complaints(plain, version) for version in VERSIONS} == {version: {} for version in VERSIONS}
