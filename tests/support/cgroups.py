"""Cgroups that tests make, with a CPU limit, of the version that this machine has."""

import os
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.patience import PATIENCE_SECONDS

MOUNTED = Path("/sys/fs/cgroup")
PERIOD = 100_000  # microseconds
V1 = ("cpu", "cpu,cpuacct")


def _own(controller):
    """Return the cgroup of this process: of a controller of version 1, or of version 2 by the empty name."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path.lstrip("/")
    return ""


def _make(name, cpus):
    """Return a new cgroup with a limit; raises OSError where this machine allows none."""
    quota = int(cpus * PERIOD)
    for mount in V1:
        if (MOUNTED / mount / "cpu.cfs_quota_us").exists() or (MOUNTED / mount / "cgroup.procs").exists():
            made = MOUNTED / mount / _own("cpu") / name
            made.mkdir()
            (made / "cpu.cfs_period_us").write_text(str(PERIOD))
            (made / "cpu.cfs_quota_us").write_text(str(quota))
            return made
    made = MOUNTED / name  # the root may have processes and give controllers to its children
    made.mkdir()
    try:
        if not (made / "cpu.max").exists():
            (MOUNTED / "cgroup.subtree_control").write_text("+cpu")
        (made / "cpu.max").write_text(f"{quota} {PERIOD}")
    except OSError:
        made.rmdir()
        raise
    return made


@contextmanager
def cpu_limit(cpus):
    """Yield a function that puts a process under a CPU limit; only root may do that, and root must be able to."""
    if os.geteuid() != 0:
        pytest.skip("only root makes cgroups")
    made = _make(f"heterotp-test-{os.getpid()}-{uuid.uuid4().hex[:8]}", cpus)
    procs = made / "cgroup.procs"
    try:
        yield lambda pid: procs.write_text(str(pid))
    finally:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _removed(made):
            assert time.monotonic() < deadline, f"{made} is not empty"
            time.sleep(0.05)


def _removed(made):
    """Move all processes to the parent and remove the cgroup; False: a process that ends is still in it."""
    for pid in (made / "cgroup.procs").read_text().split():
        with suppress(OSError):
            (made.parent / "cgroup.procs").write_text(pid)
    with suppress(OSError):
        made.rmdir()
        return True
    return False
