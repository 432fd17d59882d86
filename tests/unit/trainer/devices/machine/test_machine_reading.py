"""What counters of several moments say together."""

import math
import threading

import pytest
from heterotp_trainer.devices.machine.reading import (
    NO_READING,
    NUMBERS,
    WINDOW_SECONDS,
    Counters,
    GpuState,
    reading,
)
from heterotp_trainer.devices.machine.watch import MachineWatch


def test_shares_of_the_time_between_first_and_last():
    first = Counters(10.0, delayed=1.0, cpu_pressure=5.0, io_pressure=2.0, stolen=(10, 100), faults=3, segments=(0, 0))
    last = Counters(20.0, delayed=3.0, cpu_pressure=9.0, io_pressure=2.0, stolen=(60, 200), faults=23, segments=(5, 50))
    found = reading([first, last])
    assert (found.delayed, found.cpu_pressure, found.io_pressure) == (0.2, 0.4, 0.0)
    assert (found.stolen, found.faults, found.retransmitted) == (0.5, 2.0, 0.1)
    assert math.isnan(found.memory_pressure) and math.isnan(found.cpu_limit)


@pytest.mark.parametrize(
    ("seconds", "reached", "share"),
    [(6.1, 90, 0.61), (38.0, 75, 0.75), (38.0, 100, 1.0), (0.0, 0, 0.0)],
    ids=["one thread", "four threads", "always", "never"],
)
def test_throttled_time_of_several_cpus_is_no_more_than_the_periods_that_reached_the_limit(seconds, reached, share):
    first = Counters(0.0, periods=100, throttled_periods=10, throttled=1.0, cpu_limit=0.5)
    last = Counters(10.0, periods=200, throttled_periods=10 + reached, throttled=1.0 + seconds, cpu_limit=0.5)
    found = reading([first, last])
    assert found.throttled == pytest.approx(share)
    assert found.cpu_limit == 0.5


def test_a_cgroup_without_a_limit_is_not_throttled():
    assert reading([Counters(0.0, 0, 0, 0.0), Counters(5.0, 0, 0, 0.0)]).throttled == 0.0
    assert math.isnan(reading([Counters(0.0), Counters(5.0)]).throttled)


def test_what_comes_in_bursts_counts_by_the_intervals_that_show_it():
    faults, power, errors = (0, 10, 1000, 1010), (False, True, True, False), (4, 4, 4, 5)
    taken = [
        Counters(3.0 * i, faults=faults[i], oom_kills=0, gpu=GpuState(power[i], None, 0, errors[i])) for i in range(4)
    ]
    found = reading(taken)
    assert found.swapping == pytest.approx(1 / 3)
    assert found.gpu_power == pytest.approx(2 / 3)
    assert found.gpu_errors == pytest.approx(1 / 3)
    assert (found.oom, found.gpu_others) == (0.0, 0.0)
    assert math.isnan(found.gpu_thermal)


def test_counters_that_begin_anew_never_give_a_negative_share():
    found = reading(
        [Counters(0.0, 9, 9, 9.0, stolen=(9, 90), delayed=9.0), Counters(1.0, 1, 1, 1.0, stolen=(1, 9), delayed=0.0)]
    )
    assert all(math.isnan(value) or value >= 0 for value in found.numbers())


@pytest.mark.parametrize("taken", [[], [Counters(1.0, 1, 1, 1.0)], [Counters(1.0), Counters(1.0)]])
def test_one_moment_says_nothing(taken):
    assert reading(taken) is NO_READING
    assert len(NO_READING.numbers()) == NUMBERS


def test_a_watch_keeps_the_last_seconds():
    moments = iter(range(0, 300, 3))
    watch = MachineWatch(lambda: Counters(float(at := next(moments)), delayed=float(at > 60) * at))
    for _ in range(30):
        watch.sample()
    assert watch.newest.delayed == pytest.approx(1.0)
    assert watch._taken[-1].at - watch._taken[0].at <= WINDOW_SECONDS


def test_a_watch_reads_in_its_own_thread_until_it_is_stopped():
    seen, enough = [], threading.Event()

    def take():
        seen.append(threading.current_thread().name)
        if len(seen) >= 3:
            enough.set()
        return Counters(float(len(seen)), delayed=0.5 * len(seen))

    watch = MachineWatch(take, every=0.001)
    watch.start()
    assert enough.wait(60)
    watch.stop()
    count = len(seen)
    assert set(seen) == {"machine"} and not watch._thread.is_alive()
    assert watch.newest.delayed == pytest.approx(0.5)
    assert len(seen) == count
