"""What the images install is pinned by hash, and advisories on it are shown."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
from support.places import ROOT

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
COMMAND_ENDS = re.compile(r"&&|\|\||;|\n")
OWN_WHEEL = "--no-deps /wheels/*.whl"
OTHER_INDEX = '--index-url "$TORCH_INDEX"'


def entries(name):
    """Return the hashes of every pin of a lock file."""
    parts = re.split(r"^(?=\S)", (ROOT / name).read_text(), flags=re.MULTILINE)
    return {PIN.match(part)[0]: set(re.findall(r"sha256:[0-9a-f]{64}", part)) for part in parts if PIN.match(part)}


LOCKS = [f"locks/{path.name}" for path in sorted((ROOT / "locks").glob("*.lock"))]


@pytest.mark.parametrize("name", LOCKS)
def test_an_images_pins_and_hashes_are_those_of_the_whole_lock(name):
    whole = entries("requirements.lock")
    for pin, hashes in entries(name).items():
        assert hashes and hashes <= whole[pin], pin


def names_of(requirements):
    return {re.match(r"[A-Za-z0-9._-]+", each)[0].lower() for each in requirements}


@pytest.mark.parametrize("extra", ["operator", "trainer", "hf"])
def test_an_image_has_every_dependency_of_its_extra(extra):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = names_of([*project["dependencies"], *project["optional-dependencies"][extra]])
    pinned = {pin.partition("==")[0] for pin in entries(f"locks/{extra}.lock")}
    assert wanted - {"torch"} <= pinned
    assert "torch" not in pinned and "torch" in {pin.partition("==")[0] for pin in entries("locks/torch.lock")}


def test_everything_that_the_dockerfile_installs_has_a_hash():
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    commands = [each for each in COMMAND_ENDS.split(text) if re.search(r"pip (install|wheel)", each)]
    assert len(commands) > 6
    exempt = (OWN_WHEEL, OTHER_INDEX, "--no-deps --no-build-isolation")  # what we build, and what no lock can know
    assert [each for each in commands if "--require-hashes" not in each and not any(e in each for e in exempt)] == []


def audit(tmp_path, output):
    """Run the audit with a pip-audit that prints `output`."""
    (tmp_path / "pip_audit").mkdir()
    (tmp_path / "pip_audit" / "__init__.py").touch()  # a folder without it would give way to the installed package
    (tmp_path / "pip_audit" / "__main__.py").write_text(f"print({output!r})\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return subprocess.run([sys.executable, ROOT / "tools" / "audit.py"], capture_output=True, text=True, env=env)


SOUND = {"name": "a", "version": "1", "vulns": []}
ADVISORY = {"id": "CVE-1", "fix_versions": ["3", "4"]}


def test_an_advisory_fails_the_check_by_name(tmp_path):
    weak = {"name": "b", "version": "2", "vulns": [ADVISORY]}
    done = audit(tmp_path, json.dumps({"dependencies": [SOUND, weak]}))
    assert (done.returncode, done.stderr) == (1, "audit: b 2: CVE-1: fixed in 3, 4\n")


@pytest.mark.parametrize("output", ["", json.dumps({"dependencies": [{"name": "a", "skip_reason": "no answer"}]})])
def test_without_advisories_the_check_says_so_and_fails_nothing(tmp_path, output):
    done = audit(tmp_path, output)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "audit: requirements.lock: not compared: the index gives no advisories here\n"


def test_a_check_without_its_tool_fails():
    # without site-packages nothing but the standard library is there
    done = subprocess.run([sys.executable, "-S", ROOT / "tools" / "audit.py"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "audit: pip-audit is not installed: run make setup\n")


def test_packages_without_advisories_pass(tmp_path):
    done = audit(tmp_path, json.dumps({"dependencies": [SOUND]}))
    assert (done.returncode, done.stdout) == (0, "audit: requirements.lock: 1 of 1 packages compared, 0 advisories\n")
