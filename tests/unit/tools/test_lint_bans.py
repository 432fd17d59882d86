"""The lint rules forbid everything that unpickles, by whatever way it is imported."""

import re
import subprocess
import sys

import pytest
import torch.distributed.distributed_c10d as c10d
from support.places import ROOT

OBJECTS = sorted(name for name in vars(c10d) if re.search("_object(_list)?$|_tensor_to_object", name))
READERS = ["dill", "cloudpickle", "joblib", "marshal", "pickle", "_pickle", "shelve"]
RUFF = [sys.executable, "-m", "ruff", "check", "-q", "--select", "TID251", "--output-format", "concise", "-"]
TORCH = ["torch.load", "torch.serialization.load", "torch.distributed.rpc"]


def refused(code):
    """Return the complaints of ruff on a file of the trainer that holds `code`."""
    done = subprocess.run(
        [*RUFF, "--stdin-filename", str(ROOT / "trainer" / "heterotp_trainer" / "new.py")],
        input=code,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode in (0, 1), done.stderr
    return re.findall(r"TID251 `([^`]+)` is banned", done.stdout)


def test_torch_has_the_functions_that_are_looked_for():
    assert {"all_gather_object", "gather_object", "broadcast_object_list", "_tensor_to_object"} <= set(OBJECTS)


@pytest.mark.parametrize("name", OBJECTS)
def test_collectives_of_objects_are_refused_in_both_places(name):
    places = ["torch.distributed.distributed_c10d"]
    places += ["torch.distributed"] if not name.startswith("_") else []
    for place in places:
        assert refused(f"import torch\n\n{place}.{name}(None)\n") == [f"{place}.{name}"]
        assert refused(f"from {place} import {name}\n\n{name}(None)\n") != []


@pytest.mark.parametrize("name", READERS)
def test_modules_that_run_what_they_read_are_refused(name):
    assert refused(f"import {name}\n\n{name}.loads(b'')\n") != []
    assert refused(f"from {name} import load\n\nload(b'')\n") != []


@pytest.mark.parametrize("name", TORCH)
def test_what_torch_unpickles_with_is_refused(name):
    assert refused(f"import torch\n\n{name}(None)\n") != []


def test_what_ranks_do_exchange_by_is_allowed():
    assert refused("import torch.distributed as dist\n\ndist.all_gather([], None)\n") == []
