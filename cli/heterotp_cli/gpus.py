"""The GPUs of this machine for each pod of a local gang; on a cluster the device plug-in assigns them."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from heterotp_api.job import HeteroTPJob
from heterotp_api.ranks import pods

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible(environ: Mapping[str, str], devices: Path = Path("/dev")) -> list[str] | None:
    """Return the GPUs that this process may use, by name or number; None where only the trainer can find out."""
    given = environ.get(VARIABLE)
    if given is not None:  # as to CUDA, the list ends at the first negative number
        return list(takewhile(lambda name: name and not name.startswith("-"), map(str.strip, given.split(","))))
    return [str(number) for number in range(len(list(devices.glob("nvidia[0-9]*"))))] or None


def deal(job: HeteroTPJob, gpus: Sequence[str] | None) -> tuple[list[str | None], str]:
    """Return the value of VARIABLE in each pod (None: not set), and a note for the user ("": none).

    Every rank has its own GPU. Where there are too few, ranks of device type auto compute on the CPU.
    Raises ValueError where there are too few for the ranks of type cuda.
    """
    if gpus is None:
        return [None for _ in pods(job.spec)], ""
    types = [job.spec.worker_groups[place.group_index].device.type for place in pods(job.spec)]
    counts = [place.processes for place in pods(job.spec)]
    demanded = sum(count for kind, count in zip(types, counts, strict=True) if kind == "cuda")
    if demanded > len(gpus):
        raise ValueError(f"spec.workerGroups: device.type cuda on {demanded} ranks: this machine has {len(gpus)} GPUs")
    wanted = sum(count for kind, count in zip(types, counts, strict=True) if kind in ("cuda", "auto"))
    enough = wanted <= len(gpus)
    dealt: list[str | None] = []
    free = list(gpus)
    for kind, count in zip(types, counts, strict=True):
        if kind == "cuda" or (kind == "auto" and enough):
            dealt.append(",".join(free[:count]))
            free = free[count:]
        else:
            dealt.append("")
    note = f"{len(gpus)} GPUs for {wanted} ranks: those of device type auto compute on the CPU"
    return dealt, note if gpus and not enough else ""
