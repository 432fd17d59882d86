"""What a session refuses: calls in the wrong order."""

import json
import signal
import urllib.error
import urllib.request

import pytest
import torch
import torch.distributed as dist
from heterotp_api.names import LEASE_CHALLENGE_HEADER, LEASE_HEADER, LEASE_PROOF_HEADER, Env
from heterotp_api.proofs import lease_proof
from heterotp_api.trainer_status import TrainerStatus
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.errors import InputError
from heterotp_trainer.launch.environment import read_environment
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.session import Session
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from support.dispatched import HostReads
from support.ports import free_port
from torch import nn
from torch.nn.utils import clip_grad

WIDTH, UNITS, RANKS = 8, 48, 3
EVEN = UnitPlan.even(RANKS, RANKS, UNITS)
SKEWED = UnitPlan.from_counts([1, 1, 1], [20, 20, 8])


def context(rank=0, plan=EVEN):
    return TPContext(None, rank, RANKS, Device(torch.device("cpu"), "cpu"), NullClock(), plan)


@pytest.fixture
def session():
    """A session of one rank that has not watched a model yet."""
    before = signal.getsignal(signal.SIGTERM)
    environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": str(free_port())}
    session = Session(read_environment(environment))
    yield session
    session.fail("the test is over")
    signal.signal(signal.SIGTERM, before)
    dist.destroy_process_group()


CALLS = {
    "boundary": lambda session: session.boundary(1),
    "step": lambda session: session.step(),
    "save": lambda session: session.save(),
    "restore": lambda session: session.restore(),
    "balancer": lambda session: session.balancer,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_without_a_model_names_the_missing_call(session, call):
    with pytest.raises(ValueError, match=r"^session: call session\.watch\(model, optimizer\) first"):
        call(session)


def test_a_call_without_shares_names_the_missing_call(session):
    with pytest.raises(ValueError, match=r"^session: call session\.shard\("):
        session.watch(nn.Linear(2, 2), None)
    session.evaluated(1.0, 0.5, epoch=1)  # shows nothing yet
    session.fail("early")


def test_a_second_shard_returns_the_same_context_so_that_names_stay_unique(session):
    first = session.shard()
    assert session.shard(probe=(8, 8, 8)) is first


def test_two_layers_of_one_name_are_refused_across_calls_of_shard(session):
    kept = ParallelMLP(session.shard(), 4, 8, name="mlp", seed=0)
    with pytest.raises(InputError, match=r"^layer 'mlp\.fc1': another layer has this name"):
        ParallelMLP(session.shard(), 4, 8, name="mlp", seed=0)
    assert kept.fc1.tp is session.tp


def test_an_optimizer_that_is_not_element_wise_is_refused_by_watch(session):
    session.shard()
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"^optimizer Adafactor: its state row_var"):
        session.watch(model, torch.optim.Adafactor(model.parameters()))


@pytest.fixture
def watching(tmp_path):
    """Yield start(telemetry) -> a session of one rank that watches a model on a status port, and that port."""
    before, started = signal.getsignal(signal.SIGTERM), []

    def start(telemetry, **more):
        port = free_port(2)
        ports = {"MASTER_PORT": str(port), Env.STATUS_PORT: str(port + 1)}
        environment = {"RANK": "0", "WORLD_SIZE": "1", Env.CONTROL_DIR: str(tmp_path), **ports, **more}
        session = Session(read_environment(environment), telemetry=telemetry)
        started.append(session)
        model = nn.Linear(2, 2)
        session.shard()
        session.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
        return session, port + 1

    yield start
    for session in started:
        session.fail("the test is over")
    signal.signal(signal.SIGTERM, before)
    dist.destroy_process_group()


def get(port, path, headers=None):
    return ask(port, path, headers)[0]


def ask(port, path, headers=None):
    """Return the text of an answer and its headers."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers or {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode(), answer.headers


@pytest.mark.parametrize("telemetry", [True, False], ids=["telemetry", "no-telemetry"])
def test_an_operators_poll_renews_the_lease_with_and_without_telemetry(watching, tmp_path, telemetry):
    (tmp_path / "control.json").write_text(json.dumps({"generation": 3, "leaseSeconds": 10}))
    session, port = watching(telemetry)
    now = session.control.lease._now()
    session.control.lease._now = lambda: now
    for iteration in (1, 2):
        session.step()
        session.boundary(iteration)
    now += 11
    assert TrainerStatus.model_validate_json(get(port, "/status")).applied_generation == 3
    assert session.control.lease_is_over()  # not a poll of the operator
    get(port, "/status", {LEASE_HEADER: "operator"})
    assert not session.control.lease_is_over()


def test_with_a_secret_only_a_poll_with_its_proof_renews_the_lease_and_only_once(watching, tmp_path):
    (tmp_path / "control.json").write_text(json.dumps({"generation": 3, "leaseSeconds": 10}))
    secret = "the secret of this attempt"
    session, port = watching(False, **{Env.RENDEZVOUS_SECRET: secret, Env.JOB: "job", Env.ATTEMPT: "2"})
    now = session.control.lease._now()
    session.control.lease._now = lambda: now
    for iteration in (1, 2):
        session.step()
        session.boundary(iteration)

    def poll(proof):
        """Poll an hour later; return the challenge of the answer and whether the lease was renewed."""
        nonlocal now
        now += 3600
        headers = {LEASE_HEADER: "operator", LEASE_PROOF_HEADER: proof}
        return ask(port, "/status", headers)[1][LEASE_CHALLENGE_HEADER], not session.control.lease_is_over()

    challenge, renewed = poll("")
    assert not renewed
    assert poll(lease_proof("the secret of another", "job", 2, challenge)) == (challenge, False)
    proof = lease_proof(secret, "job", 2, challenge)
    following, renewed = poll(proof)
    assert renewed
    assert poll(proof) == (following, False), "replayed"


def test_the_host_reads_one_value_in_an_update_that_clips_and_looks_for_values_that_are_not_finite(watching):
    session, _ = watching(False)
    parameters = session.watched.parameters.values()
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 100.0)
    with HostReads() as reads:
        session.step(1.0, loss=torch.tensor(2.0))
    assert float(torch.stack([each.grad.norm() for each in parameters]).norm()) == pytest.approx(1.0)
    assert reads.count == 1


def test_the_first_step_shows_state_that_no_unit_can_take_along(watching):
    session, _ = watching(False)
    optimizer = session.watched.optimizer
    (group,) = optimizer.param_groups
    optimizer.state[group["params"][0]]["row_mean"] = torch.zeros(2, 1)
    with pytest.raises(ValueError, match=r"^optimizer SGD: its state row_mean of weight has shape \(2, 1\)"):
        session.step()


def test_after_a_step_that_failed_an_own_step_is_still_refused(watching):
    session, _ = watching(False)
    optimizer = session.watched.optimizer
    fails = optimizer.register_step_post_hook(lambda *arguments: int("three"))
    with pytest.raises(ValueError, match="invalid literal"):
        session.step()
    fails.remove()
    with pytest.raises(InputError, match=r"^optimizer\.step\(\) was called by the script"):
        optimizer.step()


def test_a_second_model_is_refused(watching):
    session, _ = watching(False)
    other = nn.Linear(2, 2)
    with pytest.raises(InputError, match=r"^session\.watch: a model is watched already"):
        session.watch(other, torch.optim.SGD(other.parameters(), lr=0.1))


def test_with_one_rank_torchs_clipping_is_right_and_allowed(session, monkeypatch):
    monkeypatch.setattr(clip_grad, "_clip_grads_with_norm_", clip_grad._clip_grads_with_norm_)
    if hasattr(clip_grad._clip_grads_with_norm_, "refuses_shards"):  # by another test
        monkeypatch.setattr(clip_grad, "_clip_grads_with_norm_", clip_grad._clip_grads_with_norm_.__wrapped__)
    model = nn.Sequential(ParallelMLP(session.shard(), 4, 8, name="mlp", seed=0))
    session.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    model(torch.ones(2, 4)).sum().backward()
    assert nn.utils.clip_grad_norm_(model.parameters(), 1.0) > 0
    session.step()


def test_without_telemetry_the_port_serves_health_and_control_but_no_metrics(watching, tmp_path):
    (tmp_path / "control.json").write_text(json.dumps({"generation": -1}))
    session, port = watching(False)
    first = TrainerStatus.model_validate_json(get(port, "/status"))
    assert (first.state, first.job) == ("starting", session.environment.job)
    assert "generation: -1" in first.control_error and first.control_error_generation == -1
    session.step()
    session.boundary(1)
    assert TrainerStatus.model_validate_json(get(port, "/status")).state == "running"
    assert get(port, "/healthz") == "ok\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(port, "/metrics")
    session.fail("over")
    with pytest.raises(urllib.error.URLError):
        get(port, "/healthz")


def test_an_evaluation_without_accuracy_shows_its_loss_alone(watching, tmp_path):
    (tmp_path / "control.json").write_text(json.dumps({"generation": 1}))
    session, port = watching(True)
    session.step()
    session.boundary(1)
    session.evaluated(2.5, epoch=1)
    found = TrainerStatus.model_validate_json(get(port, "/status"))
    assert (found.test_loss, found.accuracy) == (2.5, None)
    assert 'heterotp_loss{split="eval"} 2.5' in get(port, "/metrics")
    metrics = get(port, "/metrics")
    assert "heterotp_accuracy_ratio{" not in metrics and "heterotp_perplexity{" not in metrics


def test_an_evaluation_of_a_language_model_shows_perplexity_and_sample(watching, tmp_path, capsys):
    (tmp_path / "control.json").write_text(json.dumps({"generation": 1}))
    session, port = watching(True)
    session.step()
    session.boundary(1)
    session.evaluated(2.5, epoch=1, perplexity=12.18, sample="a\nb\x1b" + "c" * 2000)
    found = TrainerStatus.model_validate_json(get(port, "/status"))
    assert (found.perplexity, found.sample) == (12.18, "a\nb\x1b" + "c" * 1020)
    assert 'heterotp_perplexity{split="eval"} 12.18' in get(port, "/metrics")
    printed = capsys.readouterr().out
    assert "iteration 1: test loss 2.5000, perplexity 12.18\n" in printed
    assert r"iteration 1: sample: 'a\nb\x1bccc" in printed


@pytest.mark.parametrize("number", [0, 2, 3, 5])
def test_iterations_are_counted_without_gaps(watching, number):
    session, _ = watching(False)
    for iteration in (1, 2, 3):
        session.step()
        session.boundary(iteration)
    session.step()
    with pytest.raises(ValueError, match=rf"^session\.boundary\({number}\): .* before was 3, so this one is 4"):
        session.boundary(number)
    session.boundary(4)


def test_a_failed_run_shows_the_loss_of_its_last_iteration(watching, tmp_path):
    (tmp_path / "control.json").write_text(json.dumps({"generation": 1}))
    session, _ = watching(True)
    for iteration in (1, 2, 3):
        session.step()
        session.boundary(iteration, loss=torch.tensor(float(iteration)))
    session.fail("over")
    report = session.reporter.run_status.report()
    assert (report["iterations"], report["trainLoss"]) == (3, 3.0)
