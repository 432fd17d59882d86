"""Why a rank is slow, by what the machines of all ranks say."""

from dataclasses import replace

import numpy as np
import pytest
from heterotp_api.causes import CAUSE_KINDS, cause_text, causes_text, remedy_text
from heterotp_trainer.devices.machine.reading import Reading
from heterotp_trainer.insight.causes import MOST_OF_RANK, SHARES, Cause, RankSeen, causes

QUIET = Reading(
    throttled=0.0,
    delayed=0.02,
    cpu_pressure=0.03,
    memory_pressure=0.0,
    io_pressure=0.01,
    stolen=0.0,
    swapping=0.0,
    faults=0.0,
    oom=0.0,
    gpu_power=0.0,
    gpu_thermal=0.0,
    gpu_others=0.0,
    gpu_errors=0.0,
    retransmitted=0.0,
)
FIELDS = {
    "cpuLimit": "throttled",
    "cpuContention": "delayed",
    "cpuSteal": "stolen",
    "memoryPressure": "memory_pressure",
    "swapping": "swapping",
    "outOfMemory": "oom",
    "ioPressure": "io_pressure",
    "gpuPower": "gpu_power",
    "gpuThermal": "gpu_thermal",
    "gpuShared": "gpu_others",
    "gpuErrors": "gpu_errors",
}
LATE = {"ffnForward": 0.3}


def gang(*ranks, size=4, usual=QUIET):
    """Return a gang whose rank 2 is the given one; all ranks before and after it are quick."""
    seen = [RankSeen(chi=1.0, machine=usual) for _ in range(size)]
    seen[2 : 2 + len(ranks)] = ranks
    return seen


def kinds(found):
    return [(each.rank, each.kind) for each in found]


@pytest.mark.parametrize(("kind", "name"), FIELDS.items())
def test_each_number_of_a_slow_ranks_machine_names_its_cause(kind, name):
    machine = replace(QUIET, **{name: 0.61})
    assert kinds(causes(gang(RankSeen(LATE, 2.3, machine=machine)))) == [(2, kind)]
    assert causes(gang(RankSeen(LATE, 2.3, machine=machine)))[0].share == 0.61


@pytest.mark.parametrize(("kind", "name"), FIELDS.items())
def test_no_cause_for_a_rank_that_nobody_waits_for(kind, name):
    assert causes(gang(RankSeen({}, 1.05, machine=replace(QUIET, **{name: 0.9})))) == ()


@pytest.mark.parametrize("name", FIELDS.values())
def test_what_holds_for_quick_ranks_too_does_not_explain_a_slow_one(name):
    machine = replace(QUIET, **{name: 0.6})
    assert causes(gang(RankSeen(LATE, 2.3, machine=machine), usual=machine)) == ()


def test_where_all_ranks_are_slow_the_one_with_more_evidence_has_a_cause():
    ranks = [RankSeen(LATE, machine=replace(QUIET, delayed=delayed)) for delayed in (0.5, 0.5, 0.9)]
    assert kinds(causes(ranks)) == [(2, "cpuContention")]


def test_a_slow_rank_without_evidence_has_no_cause():
    assert causes(gang(RankSeen(LATE, 2.3, machine=QUIET))) == ()
    assert causes(gang(RankSeen(LATE, 2.3), usual=Reading())) == ()


def test_a_rank_whose_work_has_moved_away_keeps_its_cause():
    found = causes(gang(RankSeen({}, 3.0, machine=replace(QUIET, throttled=0.61, cpu_limit=0.5))))
    assert found == (Cause(2, "cpuLimit", 0.61, 0.5),)


def test_time_without_a_cpu_that_the_limit_took_is_the_limits():
    machine = replace(QUIET, throttled=0.6, delayed=0.62, cpu_pressure=0.9)
    assert kinds(causes(gang(RankSeen(LATE, machine=machine)))) == [(2, "cpuLimit")]


def test_where_threads_are_not_watched_the_pressure_counts():
    machine = replace(QUIET, delayed=float("nan"), cpu_pressure=0.5)
    assert kinds(causes(gang(RankSeen(LATE, machine=machine)))) == [(2, "cpuContention")]


def test_an_injection_is_the_cause_and_hides_what_it_makes_itself():
    machine = replace(QUIET, delayed=0.5)
    assert causes(gang(RankSeen(LATE, 2.0, asked=2.0, machine=machine))) == (Cause(2, "injection", 0.5, 2.0),)
    found = causes(gang(RankSeen(LATE, 4.0, asked=2.0, machine=machine)))
    assert kinds(found) == [(2, "injection"), (2, "cpuContention")]


def test_late_data_and_transfers_are_causes_by_their_stage():
    found = causes(gang(RankSeen({"data": 0.4, "ffnForward": 0.01}, machine=replace(QUIET, io_pressure=0.3))))
    assert kinds(found) == [(2, "data"), (2, "ioPressure")]
    found = causes(gang(RankSeen({"link": 0.2}, machine=replace(QUIET, retransmitted=0.04))))
    assert found == (Cause(2, "network", 0.2, 0.04),)
    assert causes(gang(RankSeen({"data": 0.06, "ffnForward": 0.5}, machine=QUIET))) == ()


def test_ranks_come_by_what_they_lose_and_their_causes_by_share():
    busy = replace(QUIET, delayed=0.3, stolen=0.7)
    found = causes(gang(RankSeen(LATE, machine=busy), RankSeen({"ffnForward": 0.5}, machine=busy)))
    assert kinds(found) == [(3, "cpuSteal"), (3, "cpuContention"), (2, "cpuSteal"), (2, "cpuContention")]
    everything = replace(QUIET, **dict.fromkeys(FIELDS.values(), 0.9))
    assert len(causes(gang(RankSeen(LATE, machine=everything)))) == MOST_OF_RANK


def test_a_named_cause_stays_until_its_number_has_fallen_by_half():
    def window(throttled, lost, before):
        return causes(gang(RankSeen({"ffnForward": lost}, machine=replace(QUIET, throttled=throttled))), before)

    on = SHARES["cpuLimit"]
    assert window(0.9 * on, 0.3, ()) == ()
    named = window(1.1 * on, 0.06, ())
    assert kinds(named) == [(2, "cpuLimit")]
    for throttled, lost, stays in ((0.9 * on, 0.04, True), (0.6 * on, 0.03, True), (0.4 * on, 0.3, False)):
        assert bool(window(throttled, lost, named)) is stays
    assert window(1.1 * on, 0.02, named) == ()


def test_a_hundred_quiet_windows_name_no_cause():
    draw = np.random.default_rng(7)
    before = ()
    for _ in range(100):
        size = int(draw.integers(2, 9))
        load = float(draw.uniform(0, 0.9))  # of a node that all ranks share
        ranks = [_quiet_rank(draw, load) for _ in range(size)]
        before = causes(ranks, before)
        assert before == ()


def _quiet_rank(draw, load):
    """Return a rank with noise in its times, or one that is slow for a moment on a machine like the others'."""
    slow = draw.uniform() < 0.1
    noise = {name: abs(float(draw.normal(0, 0.01))) for name in FIELDS.values()}
    noise["oom"] = noise["gpu_errors"] = noise["swapping"] = 0.0
    noise["delayed"] = load + float(draw.uniform(0, 0.05))
    lost = float(draw.uniform(0.05, 0.2) if slow else draw.uniform(0, 0.045))
    return RankSeen({"ffnForward": lost}, float(draw.uniform(0.9, 1.15)), 1.0, replace(QUIET, **noise))


# -- words ------------------------------------------------------------------------------------------------


def test_every_kind_has_words_with_and_without_an_amount():
    for kind in CAUSE_KINDS:
        for amount in (None, 0.5):
            cause = Cause(2, kind, 0.614, amount)
            assert cause_text(cause) and remedy_text(cause) and "{" not in cause_text(cause)


def test_the_sentence_of_a_throttled_rank():
    named = (Cause(2, "cpuLimit", 0.614, 0.5), Cause(2, "ioPressure", 0.2), Cause(1, "gpuThermal", 0.9))
    assert causes_text(named, 2, most=1) == (
        "its container was throttled by its CPU limit of 0.5 CPUs 61 % of the time; "
        "raise the limit, or leave it to AUTO"
    )
    assert causes_text(named, 2).count(", and processes of its container waited for a disk 20 % of the time; ") == 1
    assert causes_text(named, 0) == ""


def test_a_kind_of_a_newer_trainer_has_no_words():
    class Newer(Cause):
        pass

    assert causes_text((Newer(2, "moonlight", 0.5),), 2) == ""
