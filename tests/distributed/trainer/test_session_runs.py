"""Whole gangs through the launcher: ends, stops, deaths, checkpoints, bad input."""

import json
import os
import select
import signal
import socket
import sys
import urllib.request

import pytest
from heterotp_api.names import EXIT_BAD_INPUT, EXIT_CHECKPOINT_OWNER, EXIT_STOPPED, Env
from heterotp_api.report import RunReport
from support.balancing_gang import write_control
from support.launched import spec

LONG = 100_000


def alive(pid):
    return os.path.exists(f"/proc/{pid}/environ")


def test_unequal_groups_train_to_the_end_and_report(launch):
    groups = [
        {"name": "fast", "pods": 1, "processesPerPod": 2, "relativeSpeed": 1},
        {"name": "slow", "pods": 1, "relativeSpeed": 0.25},
    ]
    write_control(launch.workdir, 1, "None")  # equal processors would soon get equal shares
    run = launch(spec(3, groups, iterations=12, gradientClip=1.0), forked=False)
    assert run.wait() == 0, run.text()
    report = run.read("report.json")
    assert set(report) == set(RunReport(job="demo", state="failed", attempt=1).document())
    assert (report["state"], report["iterations"]) == ("succeeded", 12)
    assert [rank["group"] for rank in report["ranks"]] == ["fast", "fast", "slow"]
    shares = [rank["share"] for rank in report["ranks"]]
    assert sum(shares) == pytest.approx(1) and shares[2] < shares[0] / 2
    assert all(rank["matmulSeconds"] > 0 and rank["waitSeconds"] > 0 for rank in report["ranks"])
    assert [line["iteration"] for line in run.history()] == list(range(1, 13))
    assert run.read("status.json")["state"] == "succeeded"


def test_no_statistic_takes_warm_up_checkpoints_or_evaluations(launch):
    write_control(launch.workdir, 1, "None")
    run = launch(spec(2, iterations=47, checkpoint={"everyIterations": 10}))
    assert run.wait() == 0, run.text()
    per_epoch = 1437 // 64
    # a checkpoint is written at the end of its boundary; all ranks reach the end of an epoch together
    checkpoints, evaluations = {10, 20, 30, 40}, {per_epoch, 2 * per_epoch}
    unmeasured = [line["iteration"] for line in run.history() if not line["measured"]]
    assert unmeasured == sorted({1, 2} | {i + 1 for i in checkpoints | evaluations})
    assert [line["iteration"] for line in run.history() if line["accuracy"] is None] == list(range(1, per_epoch))


def test_a_checkpoint_by_iterations_is_of_that_iteration_from_the_first_on(launch):
    write_control(launch.workdir, 1, "None")
    run = launch(spec(2, iterations=6, checkpoint={"everyIterations": 1, "keep": 10}))
    assert run.wait() == 0, run.text()
    found = sorted(path.name for path in (run.workdir / "checkpoints").glob("step-*"))
    assert found == [f"step-{iteration:09d}" for iteration in range(1, 7)]
    assert [f"iteration {i}: checkpoint written" in run.text() for i in range(1, 7)] == [True] * 6


def test_a_finished_run_started_again_only_evaluates(launch):
    body = spec(2, iterations=23)
    run = launch(body)
    assert run.wait() == 0, run.text()
    first = run.read("report.json")
    again = launch(body, attempt=2)
    assert again.wait() == 0, again.text()
    report = again.read("report.json")
    assert (report["iterations"], report["epochs"], report["testAccuracy"]) == (23, 1, first["testAccuracy"])


def test_a_model_that_grew_is_not_filled_from_an_old_checkpoint(launch):
    assert launch(spec(2, iterations=4)).wait() == 0
    deeper = launch(spec(2, iterations=8, model={"hiddenSize": 32, "depth": 2, "heads": 4, "patchSize": 4}), attempt=2)
    assert deeper.wait() == EXIT_BAD_INPUT
    assert "the checkpoint lacks parameters of the model: blocks.1." in deeper.text()


@pytest.mark.parametrize(
    "training",
    [{"precision": "bf16"}, {"recompute": True, "accumulate": 4}, {"initialShares": "probe"}, {"schedule": "cosine"}],
    ids=["bf16", "recompute and accumulate", "probe", "cosine"],
)
def test_variants_learn(launch, training):
    run = launch(spec(2, iterations=44, **training))
    assert run.wait() == 0, run.text()
    losses = [line["loss"] for line in run.history() if line["loss"] is not None]
    assert losses[-1] < losses[0]


def test_a_signal_on_any_rank_checkpoints_and_resume_goes_on(launch):
    run = launch(spec(2, iterations=LONG))
    run.reach(5)
    os.kill(run.ranks()[1], signal.SIGTERM)
    assert run.wait() == EXIT_STOPPED, run.text()
    steps = sorted((run.workdir / "checkpoints").glob("step-*"))
    stopped = int(steps[-1].name.removeprefix("step-"))
    assert stopped >= 5
    again = launch(spec(2, iterations=stopped + 4), attempt=2)
    assert again.wait() == 0, again.text()
    assert again.read("status.json")["resumedFrom"] == stopped
    assert [line["iteration"] for line in again.history()][-4:] == [stopped + n for n in range(1, 5)]


def test_a_dead_rank_ends_the_gang_and_leaves_nothing(launch):
    run = launch(spec(3, iterations=LONG))
    run.reach(3)
    ranks = run.ranks()
    os.kill(ranks[1], signal.SIGKILL)
    assert run.wait() == 128 + signal.SIGKILL
    assert "a peer died or hangs" in run.text()
    assert not any(alive(pid) for pid in ranks)


def test_a_hanging_rank_ends_the_gang_within_the_timeout(launch):
    run = launch(spec(2, iterations=LONG, collectiveTimeoutSeconds=6))
    run.reach(3)
    os.kill(run.ranks()[1], signal.SIGSTOP)
    assert run.wait() != 0
    assert "a peer died or hangs" in run.text()


def test_ranks_die_with_their_launcher(launch):
    run = launch(spec(2, iterations=LONG), forked=False)
    run.reach(3)
    ranks = run.ranks()
    assert len(ranks) == 2
    handles = [os.pidfd_open(pid) for pid in ranks]
    run.process.kill()
    run.process.wait()
    for handle in handles:
        assert select.select([handle], [], [], 30)[0], "a rank outlived its launcher"
        os.close(handle)


def test_a_corrupt_checkpoint_is_passed_over(launch):
    body = spec(2, iterations=8, checkpoint={"everyIterations": 4, "keep": 5})
    assert launch(body).wait() == 0
    steps = sorted((launch.workdir / "checkpoints").glob("step-*"))
    assert len(steps) >= 2
    with (steps[-1] / "model-00001.safetensors").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff\xfe\xfd")
    longer = launch(spec(2, iterations=12, checkpoint={"everyIterations": 4, "keep": 5}), attempt=2)
    assert longer.wait() == 0, longer.text()
    assert "torn or corrupt" in longer.text()
    before = int(steps[-2].name.removeprefix("step-"))
    assert longer.read("status.json")["resumedFrom"] == before
    assert (launch.workdir / "checkpoints" / f"torn-{steps[-1].name}").is_dir()


def test_only_corrupt_checkpoints_are_an_error_that_names_them(launch):
    body = spec(2, iterations=4)
    assert launch(body).wait() == 0
    for manifest in (launch.workdir / "checkpoints").glob("step-*/manifest.json"):
        manifest.write_text(manifest.read_text()[:-20])
    broken = launch(body, attempt=2)
    assert broken.wait() == EXIT_BAD_INPUT
    assert "no checkpoint is whole" in broken.text() and "step-000000004" in broken.text()


def test_an_older_attempt_must_not_write(launch):
    body = spec(2, iterations=4)
    assert launch(body, attempt=5).wait() == 0
    late = launch(body, attempt=4)
    assert late.wait() == EXIT_CHECKPOINT_OWNER
    assert "attempt 5 owns the checkpoints" in late.text()


@pytest.mark.parametrize("which", ["rendezvous", "metrics"])
def test_a_taken_port_is_named(launch, which):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        name = Env.MASTER_PORT if which == "rendezvous" else Env.STATUS_PORT
        run = launch(spec(1, iterations=4), **{name: port})
        assert run.wait() == EXIT_BAD_INPUT
    line, launchers = [line for line in run.text().splitlines() if "error:" in line]
    assert line.startswith(f"[rank 0] error: spec.{which}.port: {port}")
    assert (
        launchers
        == f"heterotp launcher: rank 0 ended with exit code {EXIT_BAD_INPUT}: {line.removeprefix('[rank 0] ')}"
    )
    assert "Traceback" not in run.text()


def test_missing_data_is_one_line(launch):
    run = launch(spec(2, iterations=4, data={"name": "cifar10", "path": "/nowhere"}))
    assert run.wait() == EXIT_BAD_INPUT
    assert "spec.training.data.path: /nowhere: no such directory" in run.text()
    assert "Traceback" not in run.text()


def test_an_edited_control_document_is_applied_and_a_bad_one_is_reported(launch):
    run = launch(spec(2, iterations=LONG))
    control = run.workdir / "control.json"
    run.reach(3)
    control.write_text(json.dumps({"schemaVersion": 1, "generation": 7}))
    run.until("generation 7 in force", lambda: (run.read("status.json") or {}).get("appliedGeneration") == 7)
    control.write_text('{"schemaVersion": 99, "generation": 8}')
    status = run.until("the error is shown", lambda: (s := run.read("status.json")) and s["controlError"] and s)
    assert "newer than 1" in status["controlError"]
    assert status["controlErrorGeneration"] == 8
    assert status["appliedGeneration"] == 7
    port = run.port + 1
    for rank in (0, 1):
        with urllib.request.urlopen(f"http://127.0.0.1:{port + rank}/metrics", timeout=10) as answer:
            assert f'heterotp_policy_generation{{rank="{rank}"}} 7.0' in answer.read().decode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=10) as answer:
        assert json.load(answer)["appliedGeneration"] == 7


def test_the_same_trainer_runs_under_torchrun(launch):
    body = spec(1, iterations=4)
    two = spec(2, iterations=4)
    run = launch(
        body,
        command=[sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "heterotp_trainer"],
        **{Env.SPEC: json.dumps(two)},
    )
    assert run.wait() == 0, run.text()
    assert run.read("report.json")["iterations"] == 4
    assert len(run.read("report.json")["ranks"]) == 2
