"""tools/test-bare.sh on a repository of stand-ins: what its commands find, the times, and what is left of it."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.patience import PATIENCE_SECONDS
from support.places import ROOT

MAKEFILE = """
setup:
	@mkdir -p "$$GOMODCACHE/module" && chmod a-w "$$GOMODCACHE/module"
demo:
	@env >../../environment; test -z "$$FAILS"
test:
	@echo '    7 s  a stage' >"$$STAGE_TIMES"; echo $$$$ >../../started; $${WAITS:-true}
"""


@pytest.fixture
def repository(tmp_path):
    """A repository with the script, a Makefile of stand-ins and one commit."""
    place = tmp_path / "repository"
    (place / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "test-bare.sh", place / "tools")
    (place / "Makefile").write_text(MAKEFILE)
    git = ["git", "-C", place, "-c", "user.name=test", "-c", "user.email=test@example.com"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "stand-ins"]):
        subprocess.run([*git, *command], check=True)
    return place


def started(repository, *options, **environ):
    environ = {**os.environ, "TMPDIR": str(repository.parent), **environ}
    command = [repository / "tools" / "test-bare.sh", "--shared-docker", *options]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def done(process):
    with process:
        try:
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    return process.returncode, out, err


def left(repository):
    return list(repository.parent.glob("heterotp-bare-*"))


def test_the_commands_run_in_order_with_their_times_and_nothing_is_left(repository):
    code, out, err = done(started(repository))
    assert code == 0, err
    table = [line.split(" s  ")[1] for line in out.splitlines() if " s  " in line]
    assert table == ["make setup", "make demo", "make test", "a stage"]
    assert left(repository) == []


def test_home_and_every_cache_are_in_the_new_folder_and_settings_are_found(repository, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".npmrc").touch()
    names = {"NPM_CONFIG_USERCONFIG", "npm_config_userconfig", "CLUSTER_DIR", "XDG_CACHE_HOME"}
    environ = {name: value for name, value in os.environ.items() if name not in names}
    command = [repository / "tools" / "test-bare.sh", "--demo-only"]
    environ |= {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
    subprocess.run(command, env=environ, check=True, capture_output=True)
    found = dict(line.split("=", 1) for line in (tmp_path / "environment").read_text().splitlines() if "=" in line)
    caches = ["HOME", "TMPDIR", "CLUSTER_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"]
    caches += ["GOPATH", "GOCACHE", "GOMODCACHE", "PIP_CACHE_DIR", "UV_CACHE_DIR", "npm_config_cache", "MPLCONFIGDIR"]
    folders = {str(Path(found[name])).rsplit("/heterotp-bare-", 1)[0] for name in caches}
    assert folders == {str(tmp_path)}
    assert found["NPM_CONFIG_USERCONFIG"] == str(tmp_path / "home" / ".npmrc")


def test_a_failing_step_is_in_the_table_and_ends_the_run(repository):
    code, out, _ = done(started(repository, FAILS="yes"))
    assert code == 1
    assert "make demo: failed (2)" in out and "make test" not in out
    assert left(repository) == []


def test_what_is_kept_is_named(repository):
    code, _, err = done(started(repository, "--demo-only", "--keep"))
    (kept,) = left(repository)
    assert code == 0 and f"left: {kept}" in err
    (kept / "go" / "pkg" / "mod" / "module").chmod(0o755)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_its_step_and_leaves_nothing(repository, number):
    process = started(repository, WAITS="sleep 600")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (mark := repository.parent / "started").exists() or not mark.read_text().strip():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    code, _, _ = done(process)
    assert code == 128 + number
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()
    assert left(repository) == []


def test_an_unknown_option_is_refused_and_help_is_given(repository):
    code, _, err = done(started(repository, "--fast"))
    assert code == 2 and "--demo-only" in err
    code, out, _ = done(started(repository, "--help"))
    assert code == 0 and "--demo-only" in out
