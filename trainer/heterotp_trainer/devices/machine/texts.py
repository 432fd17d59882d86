"""Parsers of the kernel's files: pure functions of a text; what a text does not hold is None."""

from collections.abc import Mapping


def flat(text: str) -> dict[str, int]:
    """Return a file of lines `name number`: cpu.stat, memory.events, memory.oom_control."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def throttled_seconds(stat: Mapping[str, int]) -> float | None:
    """Return the seconds that a CPU limit stopped a cgroup, of cpu.stat: version 2 counts microseconds, 1 nanoseconds.

    The kernel adds up the seconds of all CPUs.
    """
    if "throttled_usec" in stat:
        return stat["throttled_usec"] * 1e-6
    return stat["throttled_time"] * 1e-9 if "throttled_time" in stat else None


def cpu_limit(quota: str, period: str = "") -> float | None:
    """Return a cgroup's limit in CPUs; None: it has none. quota: cpu.max (version 2), or cpu.cfs_quota_us (1).

    period: cpu.cfs_period_us, of version 1.
    """
    fields = (f"{quota} {period}").split()
    if len(fields) != 2 or not all(field.isdecimal() for field in fields) or int(fields[1]) == 0:
        return None  # "max", and -1
    return int(fields[0]) / int(fields[1])


def pressure_seconds(text: str) -> float | None:
    """Return for how long at least one task waited, of a pressure file (PSI): its line `some`."""
    for line in text.splitlines():
        name, *fields = line.split() or [""]
        total = dict(field.partition("=")[::2] for field in fields).get("total", "")
        if name == "some" and total.isdecimal():
            return int(total) * 1e-6
    return None


def stolen_ticks(stat: str) -> tuple[int, int] | None:
    """Return the ticks that the hypervisor took from all CPUs, and all ticks, of /proc/stat."""
    name, *ticks = stat.partition("\n")[0].split() or [""]
    if name != "cpu" or len(ticks) < 8 or not all(each.isdecimal() for each in ticks):
        return None
    return int(ticks[7]), sum(map(int, ticks[:8]))  # the time of guests, after these, is part of the user's


def major_faults(stat: str) -> int | None:
    """Return how often a process waited for a page from a disk, of /proc/PID/stat; the name may hold any character."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[9]) if len(fields) > 9 and fields[9].isdecimal() else None


def delayed_seconds(schedstat: str) -> float | None:
    """Return for how long a thread could have run and had no CPU, of /proc/PID/schedstat; None where it is not kept."""
    fields = schedstat.split()
    if len(fields) != 3 or not all(field.isdecimal() for field in fields) or int(fields[0]) == 0:
        return None
    return int(fields[1]) * 1e-9


def segments(snmp: str) -> tuple[int, int] | None:
    """Return the TCP segments that were sent again, and all that were sent, of /proc/net/snmp."""
    lines = [line.split()[1:] for line in snmp.splitlines() if line.startswith("Tcp:")]
    found = dict(zip(*lines, strict=False)) if len(lines) == 2 else {}
    again, sent = found.get("RetransSegs", ""), found.get("OutSegs", "")
    return (int(again), int(sent)) if again.isdecimal() and sent.isdecimal() else None


def cgroup_paths(text: str) -> dict[str, str]:
    """Return the path of a process in each hierarchy, of /proc/PID/cgroup; version 2's has the empty name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        found |= dict.fromkeys(names.split(","), path)
    return found
