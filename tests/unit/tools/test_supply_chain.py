"""What the images install is pinned by hash, and advisories on it are shown."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from support.places import ROOT

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
COMMAND_ENDS = re.compile(r"&&|\|\||;|\n")
OWN_WHEEL = "--no-deps /wheels/*.whl"


def entries(name):
    """Return the hashes of every pin of a lock file."""
    parts = re.split(r"^(?=\S)", (ROOT / name).read_text(), flags=re.MULTILINE)
    return {PIN.match(part)[0]: set(re.findall(r"sha256:[0-9a-f]{64}", part)) for part in parts if PIN.match(part)}


OTHER_INDEX = "locks/torch-cpu.lock"  # whose wheels the whole lock does not know
LOCKS = sorted({f"locks/{path.name}" for path in (ROOT / "locks").glob("*.lock")} - {OTHER_INDEX})


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
    assert len(commands) > 5
    exempt = (OWN_WHEEL, "--no-deps --no-build-isolation")  # what we build
    assert [each for each in commands if "--require-hashes" not in each and not any(e in each for e in exempt)] == []


def test_base_images_are_given_by_digest():
    text = (ROOT / "Dockerfile").read_text()
    arguments = dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", text, flags=re.MULTILINE))
    assert len(arguments) == 2
    assert [image for image in arguments.values() if not re.search(r"@sha256:[0-9a-f]{64}$", image)] == []
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", text, flags=re.MULTILINE))
    given = stages | {f"${{{name}}}" for name in [*arguments, "TRAINER"]}
    assert set(re.findall(r"^FROM (\S+)", text, flags=re.MULTILINE)) <= given


CPU_LOCK = "torch==9.9.9+cpu \\\n    --hash=sha256:" + "0" * 64 + "\n"


def fake(path, script):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def torch_installs(tmp_path, *arguments, cpu_lock="", **chosen):
    """Return the arguments of every pip by which an image gets torch, and the locks' folder."""
    shutil.copytree(ROOT / "locks", tmp_path / "locks", ignore=shutil.ignore_patterns("torch-cpu.lock"))
    if cpu_lock:
        (tmp_path / OTHER_INDEX).write_text(cpu_lock)
    fake(tmp_path / "bin" / "pip", f'echo "$*" >>{tmp_path}/called')
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", **chosen}
    subprocess.run([tmp_path / "locks" / "install-torch.sh", *arguments], check=True, env=env)
    return (tmp_path / "called").read_text().splitlines(), tmp_path / "locks"


@pytest.mark.parametrize("target", [(), ("cpu",)], ids=["cuda", "cpu"])
@pytest.mark.parametrize("cpu_lock", ["", CPU_LOCK], ids=["without a CPU lock", "with one"])
def test_by_default_torch_is_installed_by_hash(tmp_path, target, cpu_lock):
    calls, locks = torch_installs(tmp_path, *target, cpu_lock=cpu_lock)
    assert [call for call in calls if "--require-hashes" not in call] == []
    assert calls[-1].endswith(f"{locks}/torch-cpu.lock" if target and cpu_lock else f"{locks}/torch.lock")


def test_without_cuda_only_what_belongs_to_it_is_left_out(tmp_path):
    calls, locks = torch_installs(tmp_path, "cpu", cpu_lock=CPU_LOCK)
    assert calls[0].endswith(f"{locks}/needed.lock") and "--no-deps" in calls[1]
    left = {PIN.match(line)[1] for line in (locks / "torch.lock").read_text().splitlines() if PIN.match(line)}
    kept = {PIN.match(line)[1] for line in (locks / "needed.lock").read_text().splitlines() if PIN.match(line)}
    assert {"sympy", "filelock"} <= kept
    assert {"torch", "triton"} <= left - kept
    assert [name for name in left - kept if not re.match("torch|triton|nvidia-|cuda-", name)] == []


def test_only_a_torch_that_the_builder_names_has_no_hash(tmp_path):
    calls, _ = torch_installs(tmp_path, "cpu", TORCH="torch==2.10.*", TORCH_INDEX="https://index.invalid/cu126")
    (open_call,) = [call for call in calls if "--require-hashes" not in call]
    assert open_call.endswith("torch==2.10.* --index-url https://index.invalid/cu126")


@pytest.mark.parametrize("reached", [True, False])
def test_locks_of_cpu_wheels_are_written_only_from_their_index(tmp_path, reached):
    for folder in ("locks", "tools"):
        (tmp_path / folder).mkdir()
    for name in ("tools/image-locks.sh", "locks/install-torch.sh"):
        shutil.copy(ROOT / name, tmp_path / name)
    script = (  # uv: the last argument is the file to write
        "cat >/dev/null\n"  # what is piped into it
        f'for out; do :; done; case "$*" in *--default-index*whl/cpu*) {"true" if reached else "exit 2"};; esac\n'
        f"printf 'torch==9.9.9+cpu --hash=sha256:{'0' * 64}\\n' >\"$out\""
    )
    done = subprocess.run(
        [tmp_path / "tools" / "image-locks.sh"],
        env={**os.environ, "UV": fake(tmp_path / "bin" / "uv", script)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / OTHER_INDEX).exists() == reached
    assert ("torch-cpu.lock is not written" in done.stderr) == (not reached)


def sbom(tmp_path, *arguments, listed="a==1", docker="true", cyclonedx="cp"):
    """Write an SBOM with a docker that lists packages, and a tool that copies them; return the process and the file."""
    tool = fake(tmp_path / "bin" / "cyclonedx", f'for out; do :; done; {cyclonedx} "$2" "$out"')
    image = fake(tmp_path / "bin" / "docker", f"echo '{listed}'; {docker}")
    env = {**os.environ, "DOCKER": image, "CYCLONEDX": tool, "SBOM_DIR": str(tmp_path / "made")}
    done = subprocess.run([ROOT / "tools" / "sbom.sh", *arguments], env=env, capture_output=True, text=True)
    return done, tmp_path / "made" / f"{arguments[0]}-dev.cdx.json"


def test_an_sbom_lists_what_the_image_holds(tmp_path):
    done, made = sbom(tmp_path, "operator", "dev", "image", listed="kopf==1.0")
    assert (done.returncode, made.read_text()) == (0, "kopf==1.0\n"), done.stderr


@pytest.mark.parametrize("target", ["operator", "trainer", "trainer-hf", "trainer-cuda"])
def test_an_image_that_was_not_built_has_an_sbom_by_its_locks(tmp_path, target):
    done, made = sbom(tmp_path, target, "dev", "locks")
    assert done.returncode == 0, done.stderr
    listed = {line.partition("==")[0] for line in made.read_text().splitlines()}
    locks = ["operator"] if target == "operator" else ["trainer", *(["hf"] if target == "trainer-hf" else [])]
    assert {pin.partition("==")[0] for name in locks for pin in entries(f"locks/{name}.lock")} <= listed
    assert ("torch" in listed) == (target != "operator")


@pytest.mark.parametrize(
    "broken", [{"docker": "exit 1"}, {"listed": "nothing"}, {"cyclonedx": "false"}], ids=["image", "list", "tool"]
)
def test_an_sbom_that_cannot_be_written_is_a_failure(tmp_path, broken):
    done, made = sbom(tmp_path, "operator", "dev", "image", **broken)
    assert done.returncode != 0
    assert not made.exists()


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
