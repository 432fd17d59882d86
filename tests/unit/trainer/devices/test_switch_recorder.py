"""A clock that is recorded measures as before, and is itself again afterwards."""

from heterotp_trainer.devices.phase_clock import PhaseClock
from heterotp_trainer.devices.switch_recorder import SwitchRecorder


class Now:
    def __init__(self):
        self.ns = 0

    def __call__(self):
        self.ns += 1_000_000_000
        return self.ns


def test_changes_and_meetings_are_recorded_until_it_stops():
    now = Now()
    clock = PhaseClock(now)
    recorder = SwitchRecorder(clock, 100, lambda: now.ns)
    for phase in ("matmul", "matmul", "wait"):
        clock.switch(phase)
    clock.met(1.5)
    recorder.stop()
    clock.switch("fixed")
    clock.met(2.5)
    assert recorder.phases == [(1_000_000_000, "fixed"), (2_000_000_000, "matmul"), (4_000_000_000, "wait")]
    assert (recorder.arrived, recorder.completed) == ([1.5], [4.0])
    assert "switch" not in vars(clock) and "met" not in vars(clock)
    taken = clock.take()
    assert (taken["matmul"], taken["wait"]) == (2.0, 1.0)
    assert clock.take_stages().meetings == 2


def test_a_long_trace_is_bounded():
    clock = PhaseClock()
    recorder = SwitchRecorder(clock, 3)
    for phase in ("matmul", "wait") * 10:
        assert clock.switch(phase) != phase
        clock.met(0.0)
    recorder.stop()
    assert len(recorder.phases) == len(recorder.arrived) == len(recorder.completed) == 3
