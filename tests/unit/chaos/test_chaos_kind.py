"""Runs on kind, without one: what the volume is read and slowed by, and what faults of nodes and processes report."""

import base64
import subprocess
import threading
import time

import pytest
from chaos.faults.kind import LauncherFrozen, NodePaused, OutOfMemory, RankFrozen
from chaos.faults.users import LOSSLESS, InjectionChanged, PolicyChanged
from chaos.kind_watch import READ, CheckpointSeconds, published
from chaos.kind_world import STUTTER
from chaos.watcher import trimmed
from heterotp_api import names
from heterotp_trainer.checkpoint.manifest import Manifest


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A function that runs a script; programs of the node are replaced by ones that note how they were called."""
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    for name in ("mountpoint", "fsfreeze"):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{calls}\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def run(script, *arguments):
        return subprocess.run(["sh", "-c", script, "sh", *arguments], capture_output=True, text=True, timeout=60)

    run.calls = lambda: calls.read_text().splitlines() if calls.exists() else []
    return run


def manifest(folder, iteration, attempt=1, named=None):
    place = folder / f"step-{named or iteration:09d}"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text(Manifest(iteration, attempt, ()).to_json())
    return place / "manifest.json"


def test_published_checkpoints_are_read_and_those_that_are_being_written_are_not(shell, tmp_path):
    volume = tmp_path / "volume"
    manifest(volume, 20)
    manifest(volume / "job-u", 40, attempt=2)
    manifest(volume / ".claim-000000003", 60)
    assert published(shell(READ, volume).stdout) == ([[20, 1], [40, 2]], [])


def test_a_checkpoint_that_is_torn_or_of_another_iteration_is_broken(shell, tmp_path):
    torn = manifest(tmp_path, 20)
    torn.write_text(torn.read_text()[:-9])
    manifest(tmp_path, 40, named=60)
    steps, broken = published(shell(READ, tmp_path).stdout)
    assert steps == [] and len(broken) == 2
    assert broken[1].endswith("its manifest is of iteration 40")


def test_a_volume_that_is_not_mounted_is_not_read(shell, tmp_path):
    (tmp_path / "bin" / "mountpoint").write_text("#!/bin/sh\nexit 1\n")
    assert shell(READ, tmp_path).returncode == 3


def test_what_is_no_manifest_is_no_reason_to_end():
    steps, broken = published("/v/step-000000020\t%%%\n/v/step-000000040\t" + base64.b64encode(b"[]").decode())
    assert steps == [] and len(broken) == 2


def test_a_slow_volume_is_frozen_again_and_again_and_thawed_at_the_end(shell, tmp_path):
    loop = threading.Thread(target=shell, args=(STUTTER.replace("sleep 4", "sleep 0.01"), tmp_path / "slow", "/v"))
    loop.start()
    deadline = time.monotonic() + 60
    while shell.calls().count("fsfreeze -f /v") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (tmp_path / "slow.on").unlink()
    loop.join(60)
    calls = shell.calls()
    assert calls[-1] == "fsfreeze -u /v" and calls.count("fsfreeze -u /v") == calls.count("fsfreeze -f /v")


class World:
    """What faults of kind act on; notes what they do."""

    workers, strategies = ("w-0", "w-1"), LOSSLESS

    def __init__(self, leader="w-0", dead=()):
        self.done, self._leader, self._dead = [], leader, dead

    def live(self, _):
        return {"metadata": {"uid": "u", "name": "disturbed"}, "status": {"attempt": 3}}

    def running_pod(self, _, number):
        return {"metadata": {"name": f"pod-{number}", "labels": {names.LABEL_ATTEMPT: "3"}}}

    def job_name(self, _):
        return "disturbed"

    def uids(self):
        return ["u"]

    def take(self, _):
        return True

    def give_back(self, _):
        pass

    def has_leader(self, node):
        return node == self._leader

    def docker(self, *arguments):
        self.done.append(arguments)

    def execute(self, pod, program):
        self.done.append(("execute", pod["metadata"]["name"]))

    def signal(self, pod, signal, ranks):
        kind = "ranks" if ranks else "launcher"
        self.done.append((signal, kind))
        return kind not in self._dead


@pytest.mark.parametrize(("leader", "shows"), [("w-0", False), ("w-1", True)])
def test_a_node_that_is_lost_with_the_operator_need_not_show(leader, shows):
    hit = NodePaused({"worker": 0, "seconds": 40}).begin(World(leader))
    assert (hit.jobs, hit.shows) == (("u",), shows)


@pytest.mark.parametrize(("dead", "shows"), [((), False), (("ranks",), True), (("launcher",), True)])
def test_out_of_memory_shows_where_it_has_ended_a_process_of_the_job(dead, shows):
    hit = OutOfMemory({"slot": 0, "pod": 1}).begin(World(dead=dead))
    assert (hit.attempt, hit.detail, hit.shows) == (3, "pod-1", shows)


@pytest.mark.parametrize(("fault", "kind"), [(LauncherFrozen, "launcher"), (RankFrozen, "ranks")])
def test_what_is_frozen_goes_on_at_the_end(fault, kind):
    world, fault = World(), fault({"slot": 0, "pod": 0, "seconds": 2})
    assert fault.begin(world).jobs == ("u",)
    fault.end(world)
    assert world.done == [("STOP", kind), ("CONT", kind)]


def test_policies_on_ranks_whose_losses_are_compared_prune_nothing():
    drawn = {"name": "c0", "slot": 0, "deleted": False}
    specs = [PolicyChanged({**drawn, "strategy": each}).spec(World()) for each in ("None", "MIG", "ZERO", "SEMI")]
    assert [spec["strategy"] for spec in specs] == ["None", "MIG", "MIG", "MIG"]
    assert InjectionChanged({**drawn, "ranks": [1], "slowdown": 2.0}).spec(World())["jobRef"] == {"name": "disturbed"}


@pytest.mark.parametrize(("message", "says"), [("", False), ("checkpoint 40: No space left on device", True)])
def test_that_ranks_report_something_is_a_fact_of_the_history(message, says):
    running = {"type": "Running", "status": "True", "reason": "RanksTraining", "message": message}
    body = {"metadata": {"uid": "u", "name": "j", "resourceVersion": "1"}, "spec": {}}
    assert trimmed("heterotpjobs", body | {"status": {"conditions": [running]}})["says"] is says


def test_the_seconds_of_a_checkpoint_are_written_once_for_each():
    answers = iter(
        ["# TYPE heterotp_checkpoint_seconds gauge\n", *(['heterotp_checkpoint_seconds{job="j"} 4.5\n'] * 2)]
    )

    class Job:
        attempt = 1

        def pods(self, _):
            return {0: {"metadata": {"name": "p"}}}

        def ask(self, *_):
            return next(answers)

    class Notes(list):
        def write(self, what, **fields):
            self.append((what, fields["seconds"]))

    notes = Notes()
    actor = CheckpointSeconds(Job(), "u", notes)
    for _ in range(3):
        actor.step()
    assert notes == [("saved", 4.5)]
