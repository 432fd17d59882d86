"""The injections of a job: targets become ranks; what does not fit into the control document is left out."""

from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass

from heterotp_api.control import ControlInjection, control_injection
from heterotp_api.ranks import RankPlace
from heterotp_api.targets import resolve
from heterotp_api.trainer_status import MOST_INJECTIONS

from heterotp_operator.reconcile.objects import Body, injections_of, name_of

MOST_BYTES = 900_000  # of all its injections: a ConfigMap holds 1 MiB


@dataclass(frozen=True)
class JobInjections:
    """The injections of one job's control document, and why others are not in it, by uid."""

    injections: tuple[ControlInjection, ...]
    problems: Mapping[str, str]


def job_injections(
    injections: Iterable[Body], job: Body, places: tuple[RankPlace, ...], nodes: Mapping[int, str]
) -> JobInjections:
    """Return the injections of a namespace that a job's control document lists, oldest first.

    nodes: of each rank whose pod has one. After the first one that does not fit none is resolved: each costs the
    time of all ranks.
    """
    kept: list[ControlInjection] = []
    problems: dict[str, str] = {}
    left = MOST_BYTES
    full = ""
    for body, spec in injections_of(job, injections):
        uid = str(body["metadata"]["uid"])
        if full := full or (_full(kept) if len(kept) == MOST_INJECTIONS else ""):
            problems[uid] = full
            continue
        try:
            found = control_injection(name_of(body), uid, spec, resolve(spec.targets, places, nodes))
        except ValueError as error:
            problems[uid] = str(error)
            continue
        left -= len(found.model_dump_json(by_alias=True, exclude_none=True))
        if left < 0:
            problems[uid] = full = _full(kept)
        else:
            kept.append(found)
    return JobInjections(tuple(kept), problems)


def _full(kept: Sized) -> str:
    return f"the job's control document is full: {len(kept)} older injections fill it"
