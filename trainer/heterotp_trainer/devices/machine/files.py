"""Reads the kernel's counters of this process under a root directory: cgroups of version 1, 2 or both."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from heterotp_trainer.devices.machine import texts
from heterotp_trainer.devices.machine.reading import Counters, GpuState

MOST_CHARACTERS = 1 << 16  # of a file; a machine with thousands of CPUs has a long /proc/stat, whose first line counts
V1_MOUNTS = {"cpu": ("cpu,cpuacct", "cpu"), "memory": ("memory",)}  # directories of a controller of version 1
V2_MOUNTS = ("unified", "")
Parsed = TypeVar("Parsed")


class MachineFiles:
    """The files of one process; `root` holds `proc` and `sys`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root, self._proc = root, root / "proc"
        self._membership = ""  # /proc/self/cgroup; a process may be moved
        self._files: dict[str, Path | None] = {}  # of the cgroups

    def counters(self, now: float, gpu: GpuState) -> Counters:
        """Return the counters of now; what cannot be read is not known."""
        membership = _text(self._proc / "self/cgroup") or ""
        if membership != self._membership or not self._files:
            self._files = _cgroup_files(self._root / "sys/fs/cgroup", texts.cgroup_paths(membership))
            self._membership = membership
        stat = _parsed(texts.flat, self._files["cpu.stat"]) or {}
        events = _parsed(texts.flat, self._files["memory.events"]) or {}
        return Counters(
            at=now,
            periods=stat.get("nr_periods"),
            throttled_periods=stat.get("nr_throttled"),
            throttled=texts.throttled_seconds(stat),
            cpu_limit=self._cpu_limit(),
            delayed=_parsed(texts.delayed_seconds, self._proc / "self/schedstat"),
            cpu_pressure=self._pressure("cpu"),
            memory_pressure=self._pressure("memory"),
            io_pressure=self._pressure("io"),
            stolen=_parsed(texts.stolen_ticks, self._proc / "stat"),
            faults=_parsed(texts.major_faults, self._proc / "self/stat"),
            oom_kills=events.get("oom_kill"),
            segments=_parsed(texts.segments, self._proc / "net/snmp"),
            gpu=gpu,
        )

    def _cpu_limit(self) -> float | None:
        quota, period = (_parsed(str, self._files[name]) or "" for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
        return texts.cpu_limit(quota, period) if quota else _parsed(texts.cpu_limit, self._files["cpu.max"])

    def _pressure(self, name: str) -> float | None:
        """Return the cgroup's pressure, else the node's."""
        own = _parsed(texts.pressure_seconds, self._files[f"{name}.pressure"])
        return own if own is not None else _parsed(texts.pressure_seconds, self._proc / "pressure" / name)


def _cgroup_files(mounted: Path, paths: Mapping[str, str]) -> dict[str, Path | None]:
    """Return where the files of a process's cgroups lie, by their names of version 2 where both have one."""

    def of(controller: str, *names: str) -> Path | None:
        found = (place / name for place in _places(mounted, paths, controller) for name in names)
        return next((path for path in found if _text(path) is not None), None)

    return {
        "cpu.stat": of("cpu", "cpu.stat"),
        "memory.events": of("memory", "memory.events", "memory.oom_control"),
        "cpu.cfs_quota_us": of("cpu", "cpu.cfs_quota_us"),
        "cpu.cfs_period_us": of("cpu", "cpu.cfs_period_us"),
        "cpu.max": of("", "cpu.max"),
        **{f"{name}.pressure": of("", f"{name}.pressure") for name in ("cpu", "memory", "io")},
    }


def _places(mounted: Path, paths: Mapping[str, str], controller: str) -> list[Path]:
    """Return directories of a controller's files, version 1's first: it is mounted where it has the controller.

    In a container a hierarchy may be mounted from the container's cgroup on, while its path is that of the node.
    """
    mounts = [(mounted / mount, paths[controller]) for mount in V1_MOUNTS.get(controller, ()) if controller in paths]
    mounts += [(mounted / mount, paths[""]) for mount in V2_MOUNTS if "" in paths]
    return [mount / path.lstrip("/") for mount, path in mounts] + [mount for mount, _ in mounts]


def _parsed(parse: Callable[[str], Parsed | None], path: Path | None) -> Parsed | None:
    text = None if path is None else _text(path)
    return None if text is None else parse(text)


def _text(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MOST_CHARACTERS)
    except OSError:
        return None
