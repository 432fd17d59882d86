"""A run whose command line or launchers are killed: its processes end, and none starts beside those that are left."""

import os
import shlex
import shutil
import signal
import sys
import time

import pytest
import yaml
from support.cli_process import DEADLINE_SECONDS, cli_process, run_cli
from support.run_processes import processes_of

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False)
print("up", flush=True)
time.sleep(600)
"""
WAITS = "import time; print('up', flush=True); time.sleep(600)"


def write_job(path, *command, pods=2):
    """Write a job of two ranks in one or two pods, with an own command."""
    template = {"spec": {"containers": [{"name": "trainer", "command": list(command)}]}}
    group = {"name": "a", "pods": pods, "processesPerPod": 2 // pods, "template": template}
    body = {
        "apiVersion": "heterotp.io/v1alpha1",
        "kind": "HeteroTPJob",
        "metadata": {"name": "own"},
        "spec": {"tensorParallelDegree": 2, "workerGroups": [group]},
    }
    path.write_text(yaml.safe_dump(body))
    return path


def python(code):
    return (sys.executable, "-c", code)


def until(condition):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def all_ranks_are_up(workdir):
    logs = [workdir / "logs" / f"rank-{rank}.log" for rank in range(2)]
    return all(log.exists() and "up\n" in log.read_text() for log in logs)


@pytest.fixture
def run(tmp_path, workdir):
    """Return a function that starts a run of a command and returns its process once all ranks are up."""
    started = []

    def begin(*command, pods=2):
        job = write_job(tmp_path / "job.yaml", *command, pods=pods)
        context = cli_process("run", job, "--workdir", workdir)
        started.append(context)
        process = context.__enter__()
        until(lambda: all_ranks_are_up(workdir))
        return process

    yield begin
    for context in started:
        context.__exit__(None, None, None)


def refused(tmp_path, workdir):
    """Return what each way to start a run in the directory answers; all of them refuse."""
    answers = []
    for option in ((), ("--fresh",), ("--resume",)):
        done = run_cli("run", tmp_path / "job.yaml", "--workdir", workdir, *option)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        answers.append(done.stderr)
    return answers


def test_ranks_that_ignore_the_end_of_the_command_line_are_killed_and_none_starts_beside_them(tmp_path, workdir, run):
    process = run(*python(STUBBORN))
    process.kill()
    process.wait()
    left = processes_of(workdir)
    for answer in refused(tmp_path, workdir):
        assert f"{workdir}: --workdir: a run is alive there (pid " in answer
    assert len(left) == 6, "two launchers, two ranks, and what each rank has started"
    until(lambda: not processes_of(workdir))
    write_job(tmp_path / "job.yaml", "true")
    done = run_cli("run", tmp_path / "job.yaml", "--workdir", workdir, "--fresh")
    assert done.returncode == 0, done.stderr


def rename(workdir):
    workdir.rename(workdir.with_name("elsewhere"))


def replace(workdir):
    rename(workdir)
    workdir.mkdir()
    (workdir / "run.lock").touch()


@pytest.mark.parametrize("take", [shutil.rmtree, rename, replace], ids=["removed", "renamed", "replaced"])
def test_a_run_without_its_directory_fails(workdir, run, take):
    process = run(*python(WAITS))
    take(workdir)
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 1, out
    assert err == (
        f"{workdir}: --workdir: was removed or replaced during the run, which has ended: "
        "start it again in a directory that stays\n"
    )
    assert not processes_of(workdir)


def test_a_run_whose_directory_vanishes_at_its_end_fails(tmp_path, workdir):
    code = f"import shutil; print('up', flush=True); shutil.rmtree({str(workdir)!r}, ignore_errors=True)"
    write_job(tmp_path / "job.yaml", *python(code))
    done = run_cli("run", tmp_path / "job.yaml", "--workdir", workdir)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "was removed or replaced during the run" in done.stderr


def test_ranks_die_with_a_launcher_that_is_killed_together_with_the_command_line(workdir, run):
    process = run(*python(WAITS))
    processes = processes_of(workdir)
    launchers = [pid for pid, each in processes.items() if each.parent == process.pid]
    assert (len(launchers), len(processes)) == (2, 4)
    for pid in (process.pid, *launchers):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not processes_of(workdir))


def test_what_a_rank_has_left_behind_keeps_the_lock_and_is_named(tmp_path, workdir, run):
    process = run("sh", "-c", f"{shlex.join(python(WAITS))}; exit 1")  # the shell is the rank
    processes = processes_of(workdir)
    launchers = [pid for pid, each in processes.items() if each.parent == process.pid]
    for pid in (process.pid, *launchers):
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(processes_of(workdir)) == 2)
    first, second = sorted(processes_of(workdir))
    for answer in refused(tmp_path, workdir):
        assert f"a run is alive there (pid {first} and {second}): wait for it or name another directory" in answer
    for pid in (first, second):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not processes_of(workdir))
    write_job(tmp_path / "job.yaml", "true")
    assert run_cli("run", tmp_path / "job.yaml", "--workdir", workdir, "--resume").returncode == 0


@pytest.mark.parametrize("pods", [1, 2], ids=["killed by its launcher", "killed by the command line"])
def test_an_interrupt_ends_a_run_with_a_frozen_rank(workdir, run, pods):
    process = run(*python(WAITS), pods=pods)
    processes = processes_of(workdir)
    frozen = max(pid for pid, each in processes.items() if each.parent != process.pid)
    os.kill(frozen, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 130, out + err
    assert out.endswith("stopped; continue with --resume\n")
    assert not processes_of(workdir)
