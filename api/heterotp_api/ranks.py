"""The place of each rank: ranks are numbered group by group, pod by pod, process by process."""

from dataclasses import dataclass

from heterotp_api.job import Device, HeteroTPJobSpec


@dataclass(frozen=True, slots=True)
class PodPlace:
    """One pod of the gang and the ranks that start in it."""

    group: str
    group_index: int
    index: int  # within its group
    first_rank: int
    processes: int


@dataclass(frozen=True)
class RankPlace:
    """One rank, its pod and what its group declares."""

    rank: int
    group: str
    group_index: int
    pod_index: int
    local_rank: int
    device: Device
    relative_speed: float | None


def pods(spec: HeteroTPJobSpec) -> tuple[PodPlace, ...]:
    """Return all pods of the gang in rank order."""
    places: list[PodPlace] = []
    first = 0
    for group_index, group in enumerate(spec.worker_groups):
        for index in range(group.pods):
            places.append(PodPlace(group.name, group_index, index, first, group.processes_per_pod))
            first += group.processes_per_pod
    return tuple(places)


def rank_table(spec: HeteroTPJobSpec) -> tuple[RankPlace, ...]:
    """Return all ranks in order."""
    return tuple(
        RankPlace(
            rank=pod.first_rank + local,
            group=pod.group,
            group_index=pod.group_index,
            pod_index=pod.index,
            local_rank=local,
            device=spec.worker_groups[pod.group_index].device,
            relative_speed=spec.worker_groups[pod.group_index].relative_speed,
        )
        for pod in pods(spec)
        for local in range(pod.processes)
    )
