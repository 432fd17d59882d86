"""Records when a clock changes its phase, and when ranks meet, for the few iterations of a trace."""

import time
from collections.abc import Callable

from heterotp_trainer.devices.phase_clock import Clock


class SwitchRecorder:
    """Stands before the methods of one clock until `stop`; a clock without a recorder is as it was, at no cost.

    phases: (nanoseconds of the monotonic clock, phase that begins). arrived, completed: of meetings, seconds.
    """

    def __init__(self, clock: Clock, most: int, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        """most: changes, and meetings, that are kept; later ones are left out."""
        self._clock, self._most, self._now_ns = clock, most, now_ns
        self._switch, self._met = clock.switch, clock.met
        self.phases: list[tuple[int, str]] = [(now_ns(), clock.current)]
        self.arrived: list[float] = []
        self.completed: list[float] = []
        clock.__dict__.update(switch=self._record_switch, met=self._record_meeting)

    def stop(self) -> None:
        """Give the clock its own methods back."""
        for name in ("switch", "met"):
            self._clock.__dict__.pop(name, None)

    def _record_switch(self, phase: str) -> str:
        before = self._switch(phase)
        if phase != before and len(self.phases) < self._most:
            self.phases.append((self._now_ns(), phase))
        return before

    def _record_meeting(self, arrived: float) -> None:
        self._met(arrived)
        if len(self.arrived) < self._most:
            self.arrived.append(arrived)
            self.completed.append(self._clock.moment)
