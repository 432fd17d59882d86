"""What one rank has wrong, the gang must notice, name, or survive: each by sabotage of a real gang."""

import json
import math
import os
import signal
import sys

import pytest
from heterotp_api.names import EXIT_BAD_INPUT, EXIT_CHECKPOINT_OWNER, EXIT_PEER_LOST, Env
from heterotp_trainer.checkpoint import claims
from support.launched import Launched, spec
from support.places import RANK_SCRIPTS

SABOTAGE = str(RANK_SCRIPTS / "sabotage.py")


def sabotaged(launch, what, body, **options):
    return launch(body, command=[sys.executable, SABOTAGE, what], **options)


@pytest.mark.parametrize(
    ("what", "training", "code", "words"),
    [
        ("other batch", {}, 1, "the batch of ranks [2] differs from rank 0's: every rank trains on the same batches"),
        ("no bf16", {"precision": "bf16"}, EXIT_BAD_INPUT, "training.precision bf16: rank 2 on cpu has none; use fp32"),
        ("replica", {}, 1, "iteration 100: replicated tensors differ: patch_weight of rank 2 from rank 0's"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_a_rank_that_differs_is_named(launch, what, training, code, words):
    run = sabotaged(launch, what, spec(3, iterations=120, **training))
    assert run.wait() == code, run.text()
    assert words in run.text()
    assert "Traceback" not in run.text()


def test_replicas_that_differ_are_found_before_a_checkpoint_holds_them(launch):
    run = sabotaged(launch, "replica", spec(3, iterations=120, checkpoint={"everyIterations": 30}))
    assert run.wait() == 1, run.text()
    assert "iteration 30: replicated tensors differ: patch_weight of rank 2 from rank 0's" in run.text()
    assert not list(run.workdir.glob("checkpoints/step-*"))


def test_replicas_on_unlike_processors_may_round_apart(launch):
    run = sabotaged(launch, "replica on unlike processors", spec(3, iterations=120))
    assert run.wait() == 0, run.text()


def test_gradients_are_averaged_over_replicas_and_clipped_by_the_norm_of_the_whole_model(launch):
    groups = [
        {"name": "fast", "relativeSpeed": 1},
        {"name": "slow", "relativeSpeed": 0.3},
        {"name": "f", "relativeSpeed": 1},
    ]
    run = sabotaged(launch, "gradients", spec(3, groups))
    assert run.wait() == 0, run.text()
    found = [json.loads(line.split("FOUND ")[1]) for line in run.text().splitlines() if "FOUND" in line]
    found.sort(key=lambda each: each["rank"])
    assert [each["averaged"] for each in found] == [[2.0]] * 3
    assert [each["kept"] for each in found] == [[1.0], [2.0], [3.0]]
    whole = sum(each["sharded"] for each in found) + found[0]["replicated"]
    assert all(each["clipped"] == pytest.approx(1 / math.sqrt(whole), rel=1e-5) for each in found)


def test_a_probe_finds_the_slow_rank(launch):
    fast = {Env.DEVICE: json.dumps({"type": "emulated", "teraflops": 2e-5})}  # 20 ms a product, 80 on the slow rank
    run = sabotaged(launch, "slow", spec(3, iterations=2, initialShares="probe"), **fast)
    assert run.wait() == 0, run.text()
    shares = [rank["share"] for rank in run.read("report.json")["ranks"]]
    assert shares[2] < 0.5 * min(shares[:2])


def test_a_full_disk_costs_a_checkpoint_and_no_more_than_that(launch):
    run = sabotaged(launch, "disk full", spec(2, iterations=30, checkpoint={"everyIterations": 5}))
    assert run.wait() == 1, run.text()
    words = f"checkpoint of iteration %d in {run.workdir}/checkpoints cannot be written: No space left on device"
    assert [words % 10 + "; training goes on" in run.text(), "error: " + words % 30 in run.text()] == [True, True]
    assert "Traceback" not in run.text()
    assert run.read("report.json")["state"] == "failed"
    kept = [path.name for path in (run.workdir / "checkpoints").iterdir() if path.name.startswith(("step", "torn"))]
    assert kept == ["step-000000005"]
    again = launch(spec(2, iterations=30), attempt=2)
    assert again.wait() == 0, again.text()
    assert again.read("status.json")["resumedFrom"] == 5


def test_a_full_disk_does_not_keep_a_stop_waiting(launch):
    run = sabotaged(launch, "disk full", spec(2, iterations=100_000, checkpoint={"everyIterations": 5}))
    run.until("a failed checkpoint", lambda: "training goes on" in run.text())
    os.kill(run.ranks()[1], signal.SIGTERM)
    assert run.wait() == 1, run.text()  # at once: no rank waits in a collective for an absent one
    assert "[rank 0] error: checkpoint of iteration" in run.text()


def test_pods_of_unlike_sizes_may_round_apart(tmp_path):
    """The launcher gives each rank its share of the pod's cores: ranks of small pods sum in more threads."""
    body = spec(3, iterations=110, model={"hiddenSize": 128, "depth": 1, "heads": 4, "patchSize": 2})
    first = Launched(tmp_path, body, OMP_NUM_THREADS="1", **{Env.PROCESSES: "2"})
    place = {Env.PROCESSES: "1", Env.FIRST_RANK: "2"}
    ports = {Env.MASTER_PORT: str(first.port), Env.STATUS_PORT: str(first.port + 9)}
    threads = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}  # threads that spin would take the others' cores
    second = Launched(tmp_path / "second", body, **threads, **place, **ports)
    try:
        assert (first.wait(), second.wait()) == (0, 0), first.text() + second.text()
    finally:
        first.kill()
        second.kill()


def test_a_newer_attempt_takes_the_checkpoints_while_the_old_one_runs(launch):
    run = launch(spec(2, iterations=100_000, checkpoint={"everyIterations": 5}))
    run.reach(12)
    claims.take(run.workdir / "checkpoints", claims.Claim.of("", 2))
    assert run.wait() == EXIT_CHECKPOINT_OWNER
    assert "attempt 2 owns the checkpoints" in run.text()


def test_ranks_of_two_attempts_never_meet(launch):
    run = sabotaged(launch, "earlier attempt", spec(2, iterations=4, collectiveTimeoutSeconds=5), attempt=2)
    assert run.wait() == EXIT_PEER_LOST, run.text()
    assert run.history() == []


@pytest.mark.parametrize("first", ["0", "1"])
def test_a_rank_that_waits_in_vain_at_the_rendezvous_is_a_victim(launch, first):
    body = spec(2, iterations=4, collectiveTimeoutSeconds=4)
    run = launch(body, **{Env.PROCESSES: "1", Env.FIRST_RANK: first})
    assert run.wait() == EXIT_PEER_LOST, run.text()
    assert "error: a peer died or hangs" in run.text()
    assert "Traceback" not in run.text()
