"""Devices on fake time: what an emulated accelerator sleeps out, and what is refused."""

import pytest
import torch
from heterotp_api.job import Device as DeviceSpec
from heterotp_trainer.devices.device import MAX_DEBT_SECONDS, EmulatedDevice, check_precision, resolve_device


class Host:
    """A host whose sleeps over-run by `late` seconds."""

    def __init__(self, late=0.0):
        self.now, self.late = 0.0, late

    def clock(self):
        return self.now

    def sleep(self, seconds):
        assert seconds >= 0
        self.now += seconds + self.late


def emulated(host, **fields):
    return EmulatedDevice(DeviceSpec(type="emulated", teraflops=0.001, **fields), host.clock, host.sleep)


def test_a_product_takes_operations_over_speed():
    host = Host()
    device = emulated(host)
    host.now = 0.25
    device.settle_gemm((1000, 1000, 500), started=0.0)
    assert host.now == pytest.approx(1.0)


def test_late_wake_ups_average_out():
    host = Host(late=0.002)
    device = emulated(host)
    for _ in range(1000):
        device.settle_gemm((100, 100, 500), started=host.now)
    assert host.now == pytest.approx(10.0, abs=0.01)


def test_a_late_host_does_not_make_products_look_fast():
    host = Host()
    device = emulated(host, fixed_seconds=0.002)
    device.settle_fixed(10.0)
    device.settle_gemm((100, 100, 500), started=host.now)
    assert host.now == pytest.approx(0.01)


def test_debt_of_a_busy_host_is_limited():
    host = Host()
    device = emulated(host)
    host.now = 5.0
    device.settle_gemm((1000, 1000, 500), started=0.0)
    device.settle_gemm((1000, 1000, 500), started=5.0)
    assert host.now == pytest.approx(6.0 - MAX_DEBT_SECONDS)


def test_the_link_follows_the_ring_formula():
    host = Host()
    emulated(host, link_bytes_per_second=1e6, link_latency_seconds=0.5).settle_collective(2_000_000, ranks=4)
    assert host.now == pytest.approx(0.5 + 2 * 3 / 4 * 2)


def test_the_fixed_part_counts_the_time_spent():
    host = Host()
    emulated(host, fixed_seconds=2.0).settle_fixed(0.5)
    assert host.now == pytest.approx(1.5)


def test_a_plain_cpu_sleeps_nothing_and_has_a_name():
    device = resolve_device(DeviceSpec(type="cpu"), 0)
    device.settle_gemm((10**6, 10**6, 500_000), 0.0)
    assert device.name == "cpu"
    assert not device.emulated


def test_auto_is_cpu_and_cuda_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert resolve_device(DeviceSpec(type="auto"), 0).torch_device.type == "cpu"
    with pytest.raises(ValueError, match=r"device\.type cuda.*local rank 1.*has 0"):
        resolve_device(DeviceSpec(type="cuda"), 1)


def test_a_missing_precision_names_rank_and_device(monkeypatch):
    device = resolve_device(DeviceSpec(type="cpu"), 0)
    check_precision(device, "bf16", 3)
    monkeypatch.setattr(device, "supports", lambda precision: precision == "fp32")
    with pytest.raises(ValueError, match=r"bf16: rank 3 on cpu"):
        check_precision(device, "bf16", 3)


def test_an_emulated_device_rounds_as_its_processor():
    assert emulated(Host()).arithmetic == resolve_device(DeviceSpec(type="cpu"), 0).arithmetic != ""
