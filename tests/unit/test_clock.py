"""Phase clocks on fake time and fake events."""

import pytest
from heterotp_trainer.clock import PHASES, CudaPhaseClock, NullClock, PhaseClock, phase


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
    assert taken == {**dict.fromkeys(PHASES, 0.0), "matmul": 3, "wait": 5, "unit": 7, "fixed": pytest.approx(3)}
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
    """A CUDA event on a fake device: `passed` says how far the device has come."""

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
