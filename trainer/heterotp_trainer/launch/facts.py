"""What each rank reports of its machine and device when it joins a gang."""

import socket
from dataclasses import dataclass
from pathlib import Path

from heterotp_trainer.devices.device import Device


@dataclass(frozen=True)
class Facts:
    """What one rank reports to all others at the start."""

    device: str
    arithmetic: str  # Device.arithmetic
    torch_device: str
    complaint: str  # why this rank cannot run; empty: it can
    boot: str = ""  # what identifies the boot of its machine: processes of one boot share a monotonic clock


def facts_of(device: Device, complaint: str) -> Facts:
    """Return what this rank reports."""
    return Facts(device.name, device.arithmetic, device.torch_device.type, complaint, _boot())


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return socket.gethostname()
