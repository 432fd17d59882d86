"""How many CPUs a container may keep busy: those that it may run on, and no more than its limit pays for."""

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cpus(cgroup: Path = CGROUP) -> int:
    """Return the CPUs of this process: of its affinity, at most the quota of its cgroup (version 2 or 1), at least 1.

    A pod with a limit of 4 CPUs sees all 256 of its node: as many threads as those would stop each other.
    """
    quota = _quota(cgroup)
    return max(1, min(len(os.sched_getaffinity(0)), math.ceil(quota) if quota else 1 << 30))


def _quota(cgroup: Path) -> float | None:
    """Return the CPUs that the container's limit pays for; None: it has none, or none that is known."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = ((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        except OSError:
            return None
    try:
        return int(quota) / int(period) if int(quota) > 0 else None
    except (ValueError, ZeroDivisionError):  # "max": no limit
        return None
