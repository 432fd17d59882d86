"""From the targets of an injection to the ranks of one job."""

import random
from collections.abc import Collection, Mapping, Sequence

from heterotp_api.injection import Targets
from heterotp_api.policy import beyond
from heterotp_api.ranks import RankPlace


class TargetError(ValueError):
    """Targets that a job does not have: the field, and the problem as `value: what would be right`."""

    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, problem
        super().__init__(f"{field}: {problem}")


def resolve(targets: Targets, places: Sequence[RankPlace], nodes: Mapping[int, str] | None) -> list[int]:
    """Return the ranks, each once; `nodes` is the node of each rank, None where nodes are unknown.

    Raises TargetError for what the job does not have.
    """
    if targets.ranks is not None:
        if (wrong := beyond(targets.ranks, len(places))) is not None:
            raise TargetError("spec.targets.ranks", wrong)
        return list(targets.ranks)
    if targets.worker_groups is not None:
        return _of_groups(targets.worker_groups, places)
    if targets.nodes is not None:
        return _on_nodes(targets.nodes, nodes)
    assert targets.count is not None
    if targets.count > len(places):
        raise TargetError("spec.targets.count", f"{targets.count}: the job has {len(places)} ranks")
    return sorted(random.Random(targets.seed or 0).sample(range(len(places)), targets.count))


def _of_groups(groups: Sequence[str], places: Sequence[RankPlace]) -> list[int]:
    known = list(dict.fromkeys(place.group for place in places))
    unknown = next((group for group in groups if group not in known), None)
    if unknown is not None:
        raise TargetError("spec.targets.workerGroups", f"'{unknown}': the job has the groups {', '.join(known)}")
    return [place.rank for place in places if place.group in groups]


def _on_nodes(wanted: Collection[str], nodes: Mapping[int, str] | None) -> list[int]:
    if nodes is None:
        raise TargetError("spec.targets.nodes", f"{', '.join(wanted)}: it is not known which ranks run there")
    found = sorted(rank for rank, node in nodes.items() if node in wanted)
    if not found:
        raise TargetError("spec.targets.nodes", f"{', '.join(wanted)}: no rank of the job runs there")
    return found
