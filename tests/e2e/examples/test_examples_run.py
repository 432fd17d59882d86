"""The examples that need nothing but a cluster, run on it as they are; straggler/ has a test of its own."""

import pytest
import yaml
from support.places import ROOT

pytestmark = pytest.mark.e2e
EXAMPLES = ROOT / "examples"


def example(path):
    return list(yaml.safe_load_all((EXAMPLES / path).read_text()))


def test_unlike_nodes_share_by_their_speed(space):
    (body,) = example("heterogeneous.yaml")
    run = space.apply(body)
    status = run.reaches(phase="Succeeded", seconds=180)
    accelerators = {
        rank["rank"]: run.kube.get("nodes", None, rank["node"])["metadata"]["labels"]["heterotp.io/accelerator"]
        for rank in status["ranks"]
    }
    groups = [group["name"] for group in body["spec"]["workerGroups"] for _ in range(group.get("pods", 1))]
    assert [accelerators[rank] for rank in range(len(groups))] == groups
    shares = {rank["rank"]: rank["share"] for rank in status["ranks"]}
    assert shares[0] > 1.5 * shares[1]
    assert status["training"]["iteration"] == body["spec"]["training"]["iterations"]


def test_an_own_command_runs_with_the_stock_image(space):
    script = (EXAMPLES / "own-model" / "train.py").read_text()
    space.kube.create("configmaps", space.name, {"metadata": {"name": "own-model"}, "data": {"train.py": script}})
    bodies = example("own-model/cluster.yaml")
    (body,) = [each for each in bodies if each["kind"] == "HeteroTPJob"]
    run = space.apply(body)
    status = run.reaches(phase="Succeeded", seconds=180)
    assert len(run.pods()) == len(status["workerGroups"])
    assert all(group["succeeded"] == group["desired"] for group in status["workerGroups"])
