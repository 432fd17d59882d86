"""Slow-downs on fake time: how much longer a product takes, and which device knows which mode."""

import pytest
import torch
from heterotp_api.job import Device as DeviceSpec
from heterotp_trainer.devices.device import Device, EmulatedDevice
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.devices.slowdown import CudaSlowdown, Slowdown, make_slowdown
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.product import product


class Host:
    """A clock that sleeps and products move; `calls` are the parts of a product that were run again."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def again(self, part):
        self.calls.append(part)
        self.now += part

    def slowed(self, chi, mode):
        return Slowdown(chi, mode, self.clock, self.sleep)


@pytest.mark.parametrize("chi", [1.5, 2, 8])
def test_sleep_takes_chi_times_the_executed_time(chi):
    host = Host()
    slowdown = host.slowed(chi, "sleep")
    for seconds in (2.0, 0.5):  # a smaller product is slowed less
        started = host.now
        host.now += seconds
        slowdown.after((1000, 1000, 500), started, host.again)
        assert host.now - started == pytest.approx(chi * seconds)
    assert slowdown.own_seconds == pytest.approx(2.5)
    assert host.calls == []


@pytest.mark.parametrize(
    ("chi", "calls"),
    [(1, []), (1.25, [0.25]), (2, [1.0]), (2.5, [1.0, 0.5]), (4, [1.0] * 3)],
    ids=["1", "1.25", "2", "2.5", "4"],
)
def test_repeat_runs_the_product_again(chi, calls):
    host = Host()
    slowdown = host.slowed(chi, "repeat")
    host.now = 1.0
    slowdown.after((1000, 1000, 500), 0.0, host.again)
    assert host.calls == pytest.approx(calls)
    assert host.now == pytest.approx(chi)
    assert slowdown.own_seconds == 1.0


@pytest.mark.parametrize(("chi", "calls"), [(2, [1.0]), (2.5, [1.0, 0.5])], ids=str)
def test_repeated_products_are_measured_by_the_device(monkeypatch, chi, calls):
    monkeypatch.setattr(CudaSlowdown, "seconds", {})
    host, timed = Host(), []

    def on_the_device(work):
        timed.append(work)
        return 0.25

    slowdown, other = (CudaSlowdown(factor, "repeat", 0.0, on_the_device) for factor in (chi, 2 * chi))
    for shape in ((8, 2, 4), (8, 2, 4), (4, 2, 8)):
        slowdown.after(shape, 0.0, host.again)
    assert host.calls == calls * 3 and len(timed) == 2  # one for each shape
    assert slowdown.own_seconds == 3 * 0.25  # though the host was not held up
    other.after((8, 2, 4), 0.0, host.again)
    assert len(timed) == 2  # another slow-down need not wait for the device again


def test_a_product_hands_over_its_size_and_itself():
    handed = []

    class Listening(Slowdown):
        def after(self, shape, started, again):
            handed.append((shape, again(1.0), again(0.5)))

    device = Device(torch.device("cpu"), "cpu")
    device.slowdown = Listening(2.0, "repeat")
    a, b = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(3, 4)
    out = product(a, b, TPContext(None, 0, 1, device, NullClock(), UnitPlan.even(1, 1, 1)))
    shape, whole, half = handed.pop()
    assert shape == (2, 3, 4)
    assert torch.equal(whole, out) and torch.equal(out, a @ b)
    assert torch.equal(half, a[:, :1] @ b[:1])


@pytest.mark.parametrize("mode", ["sleep", "repeat"])
def test_an_emulated_device_takes_chi_times_as_long_and_books_it(mode):
    host = Host()
    device = EmulatedDevice(DeviceSpec(type="emulated", teraflops=0.001), host.clock, host.sleep)
    device.slowdown = host.slowed(3.0, mode)
    device.settle_gemm((1000, 1000, 500), 0.0, host.again)
    device.settle_gemm((1000, 500, 500), host.now, host.again)
    assert host.now == pytest.approx(4.5)
    assert device.slowdown.own_seconds == pytest.approx(1.5)
    assert host.calls == []


@pytest.mark.parametrize(
    ("mode", "kind", "chosen"),
    [(None, "cpu", "sleep"), (None, "emulated", "sleep"), ("repeat", "cpu", "repeat"), ("repeat", "cuda", "repeat")],
    ids=str,
)
def test_the_mode_is_the_requested_one_or_the_devices(mode, kind, chosen):
    made = make_slowdown(2.0, mode, kind)
    assert (made.chi, made.mode, made.own_seconds) == (2.0, chosen, 0.0)


@pytest.mark.parametrize(
    ("mode", "kind", "message"),
    [
        ("sleep", "cuda", "mode sleep: has no effect on cuda, where the host runs ahead: use spin or repeat"),
        ("spin", "cpu", "mode spin: needs cuda, this rank computes on cpu: use sleep or repeat"),
        ("spin", "emulated", "mode spin: needs cuda, this rank computes on emulated: use sleep or repeat"),
    ],
    ids=["sleep-on-cuda", "spin-on-cpu", "spin-on-emulated"],
)
def test_a_mode_that_does_nothing_there_is_refused(mode, kind, message):
    with pytest.raises(ValueError) as error:
        make_slowdown(2.0, mode, kind)
    assert str(error.value) == message
