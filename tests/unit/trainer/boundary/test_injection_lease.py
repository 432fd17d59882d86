"""The lease: when it is over, injections do not hold and do not age, until it is renewed."""

import re

import pytest
import torch
from heterotp_api import names
from heterotp_api.control import ControlInjection
from heterotp_api.proofs import lease_proof
from heterotp_trainer.boundary.exchange import CHECKPOINT, EVALUATE, LEASE_OVER, STOP, Report, merge_reports
from heterotp_trainer.boundary.injection_schedule import Age, Injecting, slowdowns
from heterotp_trainer.boundary.injector import Injector
from heterotp_trainer.boundary.lease import Lease
from heterotp_trainer.devices.device import Device
from heterotp_trainer.launch.door import Key


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def injection(uid="a", chi=2.0, **fields):
    return ControlInjection.model_validate({"uid": uid, "ranks": [1], "slowdown": chi, **fields})


def test_a_lease_runs_out_on_its_own_clock_and_is_renewed():
    clock = Clock()
    lease = Lease(now=clock)
    clock.now += 10
    assert not lease.is_over(10.0)
    clock.now += 0.5
    assert lease.is_over(10.0)
    assert not lease.is_over(None)
    lease.renew()
    assert not lease.is_over(10.0)


SECRET = "the secret of this attempt"
KEY = Key(SECRET, "job", 2)


def poll(lease, proof=None):
    """Poll as an operator; return the challenge of the answer and whether the lease was renewed."""
    before = lease._renewed
    lease._now.now += 1
    headers = {names.LEASE_HEADER: "operator-1"} | ({} if proof is None else {names.LEASE_PROOF_HEADER: proof})
    return lease.polled(headers).get(names.LEASE_CHALLENGE_HEADER), lease._renewed > before


def test_a_poll_with_the_proof_for_the_last_challenge_renews_the_lease_once():
    lease = Lease(KEY, Clock())
    challenge, renewed = poll(lease)
    assert re.fullmatch(names.LEASE_CHALLENGE, challenge) and not renewed
    proof = lease_proof(SECRET, "job", 2, challenge)
    following, renewed = poll(lease, proof)
    assert renewed and following != challenge
    assert poll(lease, proof) == (following, False), "replayed"
    assert poll(lease, lease_proof(SECRET, "job", 2, following))[1]


@pytest.mark.parametrize(
    ("secret", "job", "attempt", "given"),
    [
        ("another secret of a job", "job", 2, None),
        (SECRET, "other", 2, None),
        (SECRET, "job", 1, None),
        (SECRET, "job", 2, ""),
        (SECRET, "job", 2, "0" * 32),
        (SECRET, "job", 2, "\udcff"),
    ],
    ids=["another job's secret", "another job", "an earlier attempt", "no challenge", "an old one", "no text"],
)
def test_a_poll_without_the_right_proof_does_not_renew_the_lease(secret, job, attempt, given):
    lease = Lease(KEY, Clock())
    challenge, _ = poll(lease)
    proof = given if given == "\udcff" else lease_proof(secret, job, attempt, challenge if given is None else given)
    assert poll(lease, proof) == (challenge, False)


@pytest.mark.parametrize("key", [None, Key("", "job", 2)], ids=["none", "empty"])
def test_without_a_secret_every_poll_with_the_lease_header_renews(key):
    lease = Lease(key, Clock())
    assert poll(lease) == (None, True)
    assert poll(lease, "a proof of a newer operator") == (None, True)
    assert lease.polled({}) == {}


def test_rank_0_reports_the_end_of_a_lease_to_all_ranks():
    assert merge_reports([Report(1, flags=LEASE_OVER), Report(1)]).lease_over
    assert not merge_reports([Report(1, flags=STOP), Report(1)]).lease_over


def test_every_request_has_its_own_bit():
    flags = (STOP, CHECKPOINT, EVALUATE, LEASE_OVER)
    assert sum(flags) == STOP | CHECKPOINT | EVALUATE | LEASE_OVER
    action = merge_reports([Report(1, flags=LEASE_OVER), Report(1)])
    assert not (action.stop or action.checkpoint or action.evaluate)


def slowed(*injections):
    device = Device(torch.device("cpu"), "cpu")
    made = Injector(device, 1, range(2), 2)
    made.injections = list(injections)
    made.boundary(1, 0, 1.0)
    return made, device


def test_a_lapsed_injection_pauses_with_its_age_and_resumes():
    made, device = slowed(injection())
    assert device.slowdown is not None
    made.lapsed = True
    made.boundary(2, 0, 1.0)
    made.boundary(3, 0, 1.0)
    assert device.slowdown is None
    assert made.now.asked == ((1.0, None), (1.0, None))
    assert made.ages == {"a": Age(1, 1.0)}
    assert [each.state for each in made.now.states()] == ["lapsed"]
    made.lapsed = False
    made.boundary(4, 0, 1.0)
    assert device.slowdown.chi == 2
    assert made.ages == {"a": Age(2, 2.0)}


@pytest.mark.parametrize(
    ("fields", "iteration", "state", "ranks"),
    [
        ({}, 5, "active", (1,)),
        ({"start": {"iteration": 6}}, 5, "waiting", ()),
        ({"start": {"iteration": 5}}, 5, "active", (1,)),
        ({"stop": {"iteration": 5}}, 5, "finished", ()),
        ({"stop": {"seconds": 3.5}}, 5, "active", (1,)),
        ({"stop": {"seconds": 3.0}}, 5, "finished", ()),
        ({"paused": True}, 5, "paused", ()),
        ({"paused": True, "stop": {"iteration": 2}}, 5, "finished", ()),
    ],
    ids=str,
)
def test_the_state_of_an_injection(fields, iteration, state, ranks):
    (reported,) = Injecting((), [injection(**fields)], {"a": Age(3, 3.0)}, iteration, 0).states()
    assert (reported.uid, reported.state, reported.ranks, reported.seconds) == ("a", state, ranks, 3.0)


def test_the_state_of_a_pattern_names_the_rank_in_turn():
    turns = ControlInjection.model_validate(
        {"uid": "a", "ranks": [1, 0], "slowdown": 2.0, "pattern": {"roundRobin": {"every": {"iterations": 2}}}}
    )
    reported = [Injecting((), [turns], {"a": Age(age, 0.0)}, 9, 0).states()[0].ranks for age in range(5)]
    assert reported == [(1,), (1,), (0,), (0,), (1,)]


def test_a_hundred_injections_on_one_rank_are_bounded():
    many = [injection(str(number)) for number in range(100)]
    assert slowdowns(many, {}, 1, 0, 2) == [(1.0, None), (1000, None)]
    assert slowdowns(many[:9], {}, 1, 0, 2)[1][0] == 512
