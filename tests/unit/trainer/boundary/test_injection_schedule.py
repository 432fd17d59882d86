"""Injections: which ranks they slow when, and their effect on a rank's device."""

import pytest
import torch
from heterotp_api.control import ControlInjection
from heterotp_trainer.boundary.injection_schedule import Age, is_active, older, slowdowns, target_ranks
from heterotp_trainer.boundary.injector import Injector
from heterotp_trainer.devices.device import Device

RANKS = [4, 5, 6]
TURNS = {"roundRobin": {"every": {"iterations": 10}}}


def injection(uid="a", ranks=RANKS, chi=2.0, **fields):
    return ControlInjection.model_validate({"uid": uid, "ranks": ranks, "slowdown": chi, **fields})


def chis(injections, count, seconds=1.0, per_epoch=1000, rank=4):
    """Return chi of a rank in iterations 1 .. count, each of so many seconds."""
    ages, out = {}, []
    for iteration in range(1, count + 1):
        out.append(slowdowns(injections, ages, iteration, iteration // per_epoch, 10)[rank][0])
        ages = older(ages, injections, seconds)
    return out


# -- ranks -------------------------------------------------------------------------------------------------


def test_without_a_pattern_all_ranks_are_slowed():
    assert (
        target_ranks(injection(), Age(100, 9.0), 7)
        == target_ranks(injection(pattern={"fixed": True}), Age(), 0)
        == (4, 5, 6)
    )
    assert chis([injection()], 3) == [2, 2, 2]
    assert chis([injection()], 3, rank=3) == [1, 1, 1]


@pytest.mark.parametrize(
    ("age", "rank"), [(0, 4), (9, 4), (10, 5), (29, 6), (30, 4), (10**6 + 10, 6)], ids="age-{}".format
)
def test_round_robin_counts_iterations_since_it_took_effect(age, rank):
    assert target_ranks(injection(pattern=TURNS), Age(age, 0.0), epoch=99) == (rank,)


@pytest.mark.parametrize(("epoch", "rank"), [(0, 4), (1, 4), (2, 5), (4, 6), (6, 4)], ids="epoch-{}".format)
def test_round_robin_counts_epochs_of_the_run(epoch, rank):
    turns = {"roundRobin": {"every": {"epochs": 2}}}
    assert target_ranks(injection(pattern=turns), Age(10**6, 0.0), epoch) == (rank,)


def draws(seed, every="iterations", count=600):
    jumps = injection(pattern={"random": {"seed": seed, "every": {every: 3}}})
    moments = [(Age(n, 0.0), 0) if every == "iterations" else (Age(), n) for n in range(count)]
    return [target_ranks(jumps, *moment) for moment in moments]


@pytest.mark.parametrize("every", ["iterations", "epochs"])
def test_random_selects_among_all_ranks_by_its_seed(every):
    found = draws(1, every)
    assert found == draws(1, every) != draws(2, every)
    assert all(found[i] == found[i + 1] == found[i + 2] for i in range(0, 600, 3))
    share = {rank: found.count((rank,)) / 600 for rank in RANKS}
    assert min(share.values()) > 0.25 and sum(share.values()) == pytest.approx(1)


# -- when -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moments", "slow"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"start": {"iteration": 3}}, [3, 4, 5, 6]),
        ({"stop": {"iteration": 3}}, [1, 2]),
        ({"start": {"iteration": 2}, "stop": {"iteration": 5}}, [2, 3, 4]),
        ({"start": {"seconds": 5}}, [4, 5, 6]),
        ({"stop": {"seconds": 5}}, [1, 2, 3]),
        ({"start": {"seconds": 0}, "stop": {"seconds": 0.1}}, [1]),
        ({"start": {"seconds": 2}, "stop": {"iteration": 4}}, [2, 3]),
        ({"paused": True}, []),
    ],
    ids=["open", "start", "stop", "both", "start-seconds", "stop-seconds", "from-0-seconds", "mixed", "paused"],
)
def test_an_injection_holds_from_start_on_until_before_stop(moments, slow):
    found = chis([injection(**moments)], 6, seconds=2.0)
    assert [iteration for iteration, chi in enumerate(found, 1) if chi == 2] == slow


def test_paused_time_does_not_count():
    running, paused = injection(stop={"seconds": 3}), injection(stop={"seconds": 3}, paused=True)
    ages = older(older({}, [running], 2.0), [paused], 100.0)
    assert ages == {"a": Age(1, 2.0)}
    assert is_active(running, ages["a"], 99) and not is_active(paused, ages["a"], 99)


def test_a_removed_injection_loses_its_age():
    both = [injection("a"), injection("b")]
    ages = older(older({}, both, 1.0), both[1:], 1.0)
    assert ages == {"b": Age(2, 2.0)}
    assert older(ages, both, 1.0) == {"a": Age(1, 1.0), "b": Age(3, 3.0)}


# -- how much ---------------------------------------------------------------------------------------------


def test_injections_on_one_rank_multiply():
    two = [injection("a", chi=2.0), injection("b", ranks=[4], chi=1.5)]
    assert [chi for chi, _ in slowdowns(two, {}, 1, 0, 10)][3:6] == [1, 3, 2]


@pytest.mark.parametrize(
    ("first", "second", "mode"),
    [
        ({"mode": "repeat"}, {"mode": "sleep"}, "repeat"),
        ({}, {"mode": "sleep"}, None),
        ({"mode": "repeat", "paused": True}, {"mode": "sleep"}, "sleep"),
        ({"mode": "repeat", "ranks": [9]}, {"mode": "sleep"}, "sleep"),
        ({"mode": "repeat", "chi": 1.0}, {"mode": "sleep"}, "sleep"),
    ],
    ids=["both", "first-by-device", "first-paused", "first-elsewhere", "first-does-nothing"],
)
def test_the_mode_is_the_first_ones_that_holds(first, second, mode):
    assert slowdowns([injection("a", **first), injection("b", **second)], {}, 1, 0, 10)[4][1] == mode


# -- on the device ----------------------------------------------------------------------------------------


def injector(*injections, rank=4):
    device = Device(torch.device("cpu"), "cpu")
    made = Injector(device, rank, range(8), 8)
    made.injections = list(injections)
    return made, device


def asked(made):
    return [chi for chi, _ in made.now.asked]


def test_a_slow_down_is_set_once_and_lifted():
    made, device = injector(injection(chi=3.0, stop={"iteration": 3}))
    made.boundary(1, 0, 1.0)
    first = device.slowdown
    assert (first.chi, first.mode) == (3.0, "sleep")
    assert asked(made) == [1, 1, 1, 1, 3, 3, 3, 1]
    made.boundary(2, 0, 1.0)
    assert device.slowdown is first
    made.boundary(3, 0, 1.0)
    assert device.slowdown is None
    assert asked(made) == [1.0] * 8


@pytest.mark.parametrize("change", [{"chi": 4.0}, {"mode": "repeat"}], ids=str)
def test_another_chi_or_mode_is_another_slow_down(change):
    made, device = injector(injection(mode="sleep"))
    made.boundary(1, 0, 1.0)
    first = device.slowdown
    made.injections = [injection(**({"mode": "sleep"} | change))]
    made.boundary(2, 0, 1.0)
    assert device.slowdown is not first
    assert (device.slowdown.chi, device.slowdown.mode) == (change.get("chi", 2.0), change.get("mode", "sleep"))


def test_a_slow_down_ends_with_its_injection():
    made, device = injector(injection())
    made.boundary(1, 0, 1.0)
    made.injections = []
    made.boundary(2, 0, 1.0)
    assert device.slowdown is None and made.ages == {} and asked(made) == [1.0] * 8


def test_a_rank_that_is_not_a_target_is_not_slowed():
    made, device = injector(injection(), rank=0)
    made.boundary(1, 0, 1.0)
    assert device.slowdown is None and asked(made)[4] == 2


def test_turns_go_by_the_ages_that_the_boundaries_count():
    made, device = injector(injection(pattern={"roundRobin": {"every": {"iterations": 2}}}))
    slow = []
    for iteration in range(1, 8):
        made.boundary(iteration, 0, 1.0)
        slow.append(device.slowdown is not None)
    assert slow == [True, True, False, False, False, False, True]


def test_a_mode_that_the_device_lacks_is_printed_once_and_training_continues(capsys):
    made, device = injector(injection(mode="spin"))
    for iteration in (1, 2, 3):
        made.boundary(iteration, 0, 1.0)
    printed = capsys.readouterr().out
    assert printed.startswith("injection refused on rank 4: mode spin: needs cuda") and printed.count("\n") == 1
    assert device.slowdown is None and asked(made)[4] == 2 and made.unslowed() == 0
    made.injections = [injection(mode="sleep")]
    made.boundary(4, 0, 1.0)
    assert device.slowdown.mode == "sleep"


def test_the_time_without_slow_down_is_returned_once():
    made, device = injector(injection())
    assert made.unslowed() == 0
    made.boundary(1, 0, 1.0)
    device.slowdown.own_seconds = 1.5
    assert [made.unslowed(), made.unslowed()] == [1.5, 0]


def test_ages_outlive_a_restart():
    made, _ = injector(injection())
    made.boundary(1, 0, 2.0)
    again, _ = injector(injection())
    again.resume(made.state())
    again.boundary(2, 0, 3.0)
    assert again.ages == {"a": Age(2, 5.0)}


def test_before_the_first_document_ages_are_kept():
    again, _ = injector()
    again.injections = None
    again.resume({"a": [7, 3.5]})
    again.boundary(1, 0, 1.0)
    assert again.ages == {"a": Age(7, 3.5)}
