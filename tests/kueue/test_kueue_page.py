"""The commands of docs/kueue.md, run as they stand there."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from support.pages import DOCS, blocks
from support.places import BIN, ROOT

QUEUES = ("clusterqueue/accelerators", "clusterqueue/small", "clusterqueue/racked", "workloadpriorityclass/urgent")
FLAVORS = tuple(f"resourceflavor/{name}" for name in ("a100", "p100", "any-node", "racked"))


@pytest.fixture
def reader(kubeconfig, space, tmp_path):
    """A function that runs a block of the page in a folder with our examples; what it made is removed at the end."""
    own = yaml.safe_load(Path(kubeconfig).read_text())
    own["contexts"][0]["context"]["namespace"] = space.name
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(own))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environ = os.environ | {"KUBECONFIG": str(tmp_path / "kubeconfig"), "PATH": f"{BIN}:{os.environ['PATH']}"}

    def run(script):
        command = ["bash", "-euxo", "pipefail", "-c", script]
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
        print(done.stderr, done.stdout)
        assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
        return done.stdout

    yield run
    run(f"kubectl delete --wait=false --ignore-not-found {' '.join(QUEUES + FLAVORS)} topology/racks")


def test_the_page_is_walked_through(reader):
    commands = blocks(DOCS / "kueue.md", "sh")
    assert len(commands) > 5, "the page has its commands in blocks of sh"
    for block in commands:
        reader(block)
