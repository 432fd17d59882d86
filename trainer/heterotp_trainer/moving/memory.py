"""Memory that a move will need, taken beforehand so that it cannot fail half-way."""

from pathlib import Path

import torch
from torch import Tensor

SPARE = 0.05  # of what is available stays so: other processes breathe
CGROUP = Path("/sys/fs/cgroup")


def reserve(nbytes: int, device: torch.device) -> Tensor | None:
    """Return a buffer of so many bytes, really taken, or None where there is not enough memory."""
    if device.type == "cpu":
        free = available()
        if free is not None and nbytes > free * (1 - SPARE):
            return None
    try:
        return torch.zeros(
            nbytes, dtype=torch.uint8, device=device
        )  # zeros: the host gives pages when they are written
    except RuntimeError:  # of which torch.OutOfMemoryError is one
        return None


def available() -> int | None:
    """Return the bytes that this process may still take: of the machine, and of its container; None: nobody says."""
    known = [free for free in (_of_machine(), _of_container()) if free is not None]
    return min(known, default=None)


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(found) * 1024 if found is not None else None


def _of_container() -> int | None:
    try:
        limit, used = ((CGROUP / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    return None if limit == "max" else max(0, int(limit) - int(used))
