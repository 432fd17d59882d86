"""Phase clocks on fake time and fake events."""

import pytest
import torch
from heterotp_api.job import Device as DeviceSpec
from heterotp_api.stages import OWN_STAGES
from heterotp_trainer.boundary.iteration_context import LATEST, IterationContext, RecentContexts
from heterotp_trainer.devices.device import Device, EmulatedDevice, settled
from heterotp_trainer.devices.phase_clock import BOOKED, CudaPhaseClock, NullClock, PhaseClock, phase
from heterotp_trainer.devices.stage_times import StageTimes


class Time:
    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


def test_phases_sum_to_wall_time():
    now = Time()
    clock = PhaseClock(now)
    for name, seconds in (("matmul", 3), ("wait", 5), ("unit", 7)):
        with phase(clock, name):
            now.now += seconds * 10**9
        now.now += 10**9
    taken = clock.take()
    assert taken == {**dict.fromkeys(BOOKED, 0.0), "matmul": 3, "wait": 5, "unit": 7, "fixed": pytest.approx(3)}
    assert sum(clock.take().values()) == 0


def test_a_phase_ends_after_an_error_too():
    clock = PhaseClock(Time())
    with pytest.raises(KeyError), phase(clock, "wait"):
        raise KeyError
    assert clock.current == "fixed"


def test_nested_phases_return_to_the_outer_one():
    clock = PhaseClock(Time())
    with phase(clock, "unit"):
        with phase(clock, "matmul"):
            assert clock.current == "matmul"
        assert clock.current == "unit"


def test_the_null_clock_books_nothing():
    clock = NullClock()
    with phase(clock, "wait"):
        pass
    assert set(clock.take().values()) == {0.0}


class Event:
    """A CUDA event on a fake device: `passed` is how far the device has come."""

    def __init__(self, now, passed):
        self.now, self.passed, self.at = now, passed, None

    def record(self):
        self.at = self.now.now

    def query(self):
        return self.at <= self.passed.now

    def elapsed_time(self, end):
        assert end.query(), "read before the device got there"
        return float(end.at - self.at)


def test_cuda_events_are_read_an_iteration_later_and_never_waited_for():
    now, passed = Time(), Time()
    clock = CudaPhaseClock(lambda: Event(now, passed))
    clock.take()
    with phase(clock, "matmul"):
        now.now += 2000
    now.now += 500
    assert clock.take()["matmul"] == 0
    passed.now = now.now
    taken = clock.take()
    assert taken["matmul"] == pytest.approx(2)
    assert taken["fixed"] == pytest.approx(0.5)


def test_a_device_that_lags_behind_by_iterations_is_still_read():
    now, passed = Time(), Time()
    clock = CudaPhaseClock(lambda: Event(now, passed))
    ends = []
    for _ in range(5):
        with phase(clock, "matmul"):
            now.now += 2000
        ends.append(now.now)
        passed.now = ends[-3] if len(ends) > 2 else 0
        taken = clock.take()
    assert taken["matmul"] == pytest.approx(2)


def test_late_times_carry_their_iterations():
    now, passed, ages = Time(), Time(), []
    clock = CudaPhaseClock(lambda: Event(now, passed))
    for number, through in enumerate([0, 0, 1, 2, 2, 5, 6]):  # iterations that the device is through with
        with phase(clock, "matmul"):
            now.now += 1000 * (number + 1)
        passed.now = sum(1000 * (n + 1) for n in range(through))
        ages.append((clock.take()["matmul"], clock.age))
    # the newest iteration that the device is through with, when it is asked; none twice
    assert ages == [(0, None), (0, None), (1, 2), (2, 2), (0, None), (5, 1), (6, 1)]


def test_times_of_a_host_are_available_at_once():
    for clock in (PhaseClock(Time()), NullClock()):
        clock.take()
        assert clock.age == 0


def test_times_keep_the_context_of_their_measurement():
    recent = RecentContexts()
    every = [IterationContext(True, number) for number in range(LATEST + 1)]
    for each in every:
        recent.add(each)
    assert [recent.of(age) for age in (0, 1, LATEST - 1)] == [every[-1], every[-2], every[1]]
    assert [recent.of(age).measured for age in (None, LATEST)] == [False, False]


def test_the_end_of_an_iteration_reads_a_real_devices_clock_once():
    now, passed = Time(), Time()
    clock = CudaPhaseClock(lambda: Event(now, passed))
    device = Device(torch.device("cpu"), "real")
    for _ in range(3):
        with phase(clock, "matmul"):
            now.now += 2000
        now.now += 500
        seconds = settled(clock, device)
        passed.now = now.now
    assert seconds["matmul"] == pytest.approx(2)
    assert seconds["fixed"] == pytest.approx(0.5)


def test_the_end_of_an_iteration_books_the_sleep_of_an_emulated_device_on_it():
    now = Time()

    def sleep(seconds):
        now.now += round(seconds * 10**9)

    clock = PhaseClock(now)
    spec = DeviceSpec(type="emulated", teraflops=1.0, fixed_seconds=2.0)
    device = EmulatedDevice(spec, clock=lambda: now.now * 1e-9, sleep=sleep)
    now.now += 10**9 // 2
    assert settled(clock, device)["fixed"] == pytest.approx(2.0)
    assert clock.take()["fixed"] == 0


def test_own_time_is_booked_by_stage_and_waits_are_in_none():
    now = Time()
    clock = PhaseClock(now)
    for name, stage, seconds in (("data", "ffnForward", 1), ("matmul", "ffnForward", 2), ("wait", "ffnForward", 4)):
        clock.stage = stage
        with phase(clock, name):
            now.now += seconds * 10**9
    arrived = clock.moment
    now.now += 10**9
    clock.switch("fixed")
    clock.met(arrived)
    clock.take()
    times = clock.take_stages()
    own = dict(zip(OWN_STAGES, times.own, strict=True))
    assert (own["data"], own["ffnForward"], sum(own.values())) == (1, 2 + 1, 4)
    assert (times.completed - times.arrived, times.meetings) == (1, 1)
    assert clock.take_stages() == StageTimes()
    assert clock.stage == "embedding"


def test_cuda_events_give_the_stages_of_the_same_late_iteration():
    now, passed = Time(), Time()
    clock = CudaPhaseClock(lambda: Event(now, passed))
    clock.take()
    clock.stage = "attentionBackward"
    with phase(clock, "matmul"):
        now.now += 2000
    with phase(clock, "wait"):
        now.now += 4000
    assert sum(clock.take_stages().own) == 0
    clock.take()
    passed.now = now.now
    clock.take()
    assert dict(zip(OWN_STAGES, clock.take_stages().own, strict=True))["attentionBackward"] == pytest.approx(2)
