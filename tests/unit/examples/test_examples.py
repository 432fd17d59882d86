"""Every manifest in examples/ is valid and has a description; those that belong together fit together."""

import re
from pathlib import Path

import pytest
import yaml
from heterotp_api import names, ranks
from heterotp_api.load import load_manifest
from heterotp_api.policy import policy_problem
from heterotp_api.selector import matches
from heterotp_api.targets import resolve
from heterotp_operator.reconcile.pods import CHECKPOINT_MOUNT
from support.places import ROOT

EXAMPLES = ROOT / "examples"
FILES = sorted(EXAMPLES.rglob("*.yaml"))
STRAGGLER, ACCELERATOR = EXAMPLES / "straggler", "heterotp.io/accelerator"
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))


def ours(path, folder):
    """Return our objects of a file, one by one through load_manifest; other kinds in it are not ours to judge."""
    texts = re.split(r"^---$", path.read_text(), flags=re.MULTILINE)
    mine = [text for text in texts if yaml.safe_load(text)["apiVersion"] == names.API_VERSION]
    for number, text in enumerate(mine):
        document = folder / f"{number}.yaml"
        document.write_text(text)
        yield from load_manifest(document)


@pytest.fixture
def load(tmp_path):
    """A function that returns the only object of ours in a file."""

    def only(path):
        (found,) = ours(path, tmp_path)
        return found

    return only


def groups_at(job, key):
    """Return the accelerator that each worker group's template asks for."""
    return {group.name: group.template["spec"]["nodeSelector"][key] for group in job.spec.worker_groups}


@each_file
def test_it_begins_by_saying_what_it_shows(path):
    lines = path.read_text().splitlines()
    comment = next(n for n, line in enumerate(lines) if not line.startswith("#"))
    assert comment >= 2, "a comment of some lines"
    assert max(map(len, lines)) <= 120


@each_file
def test_it_holds_valid_objects_of_ours(path, tmp_path):
    assert list(ours(path, tmp_path))


def test_heterogeneous_groups_are_the_kind_clusters_nodes(load):
    kind = yaml.safe_load((ROOT / "tools" / "cluster" / "kind.yaml").read_text())
    labelled = {node["labels"][ACCELERATOR] for node in kind["nodes"] if "labels" in node}
    for path in ("heterogeneous", "straggler/job", "kueue", "volcano", "own-model/cluster", "own-llama/cluster"):
        asked = groups_at(load(EXAMPLES / f"{path}.yaml"), ACCELERATOR)
        assert set(asked.values()) == labelled == {"a100", "p100"}


@each_file
def test_declared_speeds_are_those_that_are_emulated(path, tmp_path):
    for job in (found for found in ours(path, tmp_path) if found.kind == "HeteroTPJob"):
        groups = [group for group in job.spec.worker_groups if group.relative_speed]
        assert len({group.device.teraflops / group.relative_speed for group in groups}) <= 1


def test_the_injection_slows_a_rank_of_the_job(load):
    job, injection = (load(STRAGGLER / f"{name}.yaml") for name in ("job", "injection"))
    assert injection.spec.job_ref.name == job.metadata.name
    assert resolve(injection.spec.targets, ranks.rank_table(job.spec), None) == [2]


def test_the_policy_selects_the_job_and_fits_it(load):
    job, policy = (load(STRAGGLER / f"{name}.yaml") for name in ("job", "policy"))
    assert matches(policy.spec.selector, job.metadata.labels)
    assert policy_problem(policy.spec.settings, job.spec.process_count) is None
    assert job.spec.balancing.policy_ref is job.spec.balancing.policy is None  # else the selector has no say


def test_the_policy_allows_what_the_straggler_must_leave_out(load):
    job, injection, policy = (load(STRAGGLER / f"{name}.yaml") for name in ("job", "injection", "policy"))
    places = ranks.rank_table(job.spec)
    (slow,) = injection.spec.targets.ranks
    share = places[slow].relative_speed / sum(place.relative_speed for place in places)
    assert share * (1 - 1 / injection.spec.slowdown) < policy.spec.max_pruned_share


def test_the_queues_that_jobs_name_are_in_their_files(load):
    for name, kind in (("kueue", "LocalQueue"), ("volcano", "Queue")):
        path = EXAMPLES / f"{name}.yaml"
        gang = load(path).spec.run_policy.gang
        queues = [b["metadata"]["name"] for b in yaml.safe_load_all(path.read_text()) if b["kind"] == kind]
        assert (gang.provider, [gang.queue]) == (name, queues)


def test_kueue_knows_every_flavor_and_resource_of_the_job(load):
    path = EXAMPLES / "kueue.yaml"
    objects = {(b["kind"], b["metadata"]["name"]): b["spec"] for b in yaml.safe_load_all(path.read_text())}
    queue = objects["ClusterQueue", objects["LocalQueue", "training"]["clusterQueue"]]["resourceGroups"][0]
    labels = {flavor["name"]: objects["ResourceFlavor", flavor["name"]]["nodeLabels"] for flavor in queue["flavors"]}
    for group in load(path).spec.worker_groups:
        spec = group.template["spec"]
        assert spec["nodeSelector"] in labels.values()
        assert set(spec["containers"][0]["resources"]["requests"]) == set(queue["coveredResources"])
    for flavor in queue["flavors"]:  # Kueue requires the resources of each flavor in the order of coveredResources
        assert [resource["name"] for resource in flavor["resources"]] == queue["coveredResources"]


def test_the_own_command_is_where_its_volume_puts_it(load):
    job = load(EXAMPLES / "own-model" / "cluster.yaml")
    for group in job.spec.worker_groups:
        spec = group.template["spec"]
        (container,), (volume,) = spec["containers"], spec["volumes"]
        (mount,) = container["volumeMounts"]
        assert container["command"] == ["python3", f"{mount['mountPath']}/train.py"]
        assert mount["name"] == volume["name"]
        assert f"create configmap {volume['configMap']['name']} " in (EXAMPLES / "own-model/cluster.yaml").read_text()


def test_the_image_has_what_the_command_names(load):
    """The Dockerfile copies what job.yaml names to where cluster.yaml looks for it."""
    example = EXAMPLES / "own-llama"
    dockerfile = (example / "Dockerfile").read_text()
    copied = re.findall(r"^COPY \S+ (\S+) (\S+)$", dockerfile, flags=re.MULTILINE)
    places = {source: target + Path(source).name if target.endswith("/") else target for source, target in copied}
    local, remote = (
        load(example / f"{name}.yaml").spec.worker_groups[0].template["spec"]["containers"][0]
        for name in ("job", "cluster")
    )
    assert [places[path] for path in local["command"][1:3]] == remote["command"][1:3]
    assert Path(remote["command"][3]).parent == Path(CHECKPOINT_MOUNT)
    assert f"-t {remote['image']} ." in dockerfile
