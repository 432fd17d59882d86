"""Slows this rank's device as the injections of the control document ask."""

from collections.abc import Mapping, Sequence
from typing import Any

from heterotp_api.control import ControlInjection
from heterotp_api.slowdown import SlowdownMode

from heterotp_trainer.boundary.injection_schedule import Age, Ages, Injecting, older, slowdowns
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.slowdown import make_slowdown


class Injector:
    """One rank's part in injections; `now` is what holds in the coming iteration, the same on all ranks."""

    def __init__(self, device: Device, rank: int, origins: Sequence[int], started: int) -> None:
        """origins: of each rank the number that it started with, by which injections name it; started: how many did."""
        self._device, self._rank, self._origins, self._started = device, rank, origins, started
        self.injections: Sequence[ControlInjection] | None = None  # None: before the first document nothing ages
        self.lapsed = False  # the lease is over: no injection holds or ages until it is renewed
        self.ages: Ages = {}
        self._nothing: tuple[tuple[float, SlowdownMode | None], ...] = ((1.0, None),) * len(origins)
        self._made: tuple[float, SlowdownMode | None] = (1.0, None)  # what the device's slow-down was made for
        self.now = Injecting(self._nothing)

    def state(self) -> dict[str, Any]:
        """Return how long each injection has been in effect, JSON-ready: uid -> [iterations, seconds]."""
        return {uid: [age.iterations, age.seconds] for uid, age in self.ages.items()}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned in an earlier attempt."""
        self.ages = {uid: Age(iterations, seconds) for uid, (iterations, seconds) in state.items()}

    def boundary(self, iteration: int, epoch: int, seconds: float) -> None:
        """Set the slow-down of iteration `iteration`; seconds: of the newest reported iteration, on rank 0."""
        if self.injections is None or not (self.injections or self.ages):
            return
        asked, ages = self._nothing, self.ages
        if not self.lapsed:
            every = slowdowns(self.injections, ages, iteration, epoch, self._started)
            asked = tuple(every[origin] for origin in self._origins)
            self.ages = older(ages, self.injections, seconds)
        self.now = Injecting(asked, self.injections, ages, iteration, epoch, self.lapsed)
        self._set(*asked[self._rank])

    def _set(self, chi: float, mode: SlowdownMode | None) -> None:
        """Slow the device by chi; an unchanged slow-down keeps its object, a refusal is printed once."""
        if (chi, mode) == self._made:
            return
        self._made = (chi, mode)
        try:
            self._device.slowdown = make_slowdown(chi, mode, self._device.kind) if chi > 1 else None
        except ValueError as error:  # the status of the injection shows it, too
            self._device.slowdown = None
            print(f"injection refused on rank {self._rank}: {error}", flush=True)

    def unslowed(self) -> float:
        """Return the seconds that products since the last call take without the slow-down; 0: there is none."""
        now = self._device.slowdown
        if now is None:
            return 0.0
        own, now.own_seconds = now.own_seconds, 0.0
        return own
