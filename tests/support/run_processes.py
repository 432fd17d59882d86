"""The live processes of a run directory: command line, launchers, ranks, and what ranks have started."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunProcess:
    """parent: its process id; rank: as the environment has it, None for a process that is no rank."""

    parent: int
    rank: str | None


def processes_of(workdir):
    """Return by process id all live processes whose environment names the run directory."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = dict(v.split("=", 1) for v in (entry / "environ").read_text().split("\0") if "=" in v)
            if variables.get("HETEROTP_WORKDIR") == str(workdir):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                found[int(entry.name)] = RunProcess(parent, variables.get("RANK"))
        except OSError:
            continue
    return found
