"""The effective control document of a job: one pure function of all three kinds."""

from collections.abc import Mapping
from dataclasses import dataclass

from heterotp_api import names
from heterotp_api.control import ControlDocument
from heterotp_api.job import HeteroTPJobSpec
from heterotp_api.ranks import rank_table

from heterotp_operator.reconcile.control_text import generation_of, holds
from heterotp_operator.reconcile.injections import JobInjections, job_injections
from heterotp_operator.reconcile.objects import Body
from heterotp_operator.reconcile.policies import Governing, governing

MOST_GENERATION = 2**52  # half of what a document can carry: no operator has counted so far


@dataclass(frozen=True)
class Sources:
    """The input of a control document; `spec` is that of `job`, `nodes` the node of each rank, for injections."""

    job: Body
    spec: HeteroTPJobSpec
    nodes: Mapping[int, str]
    policies: tuple[Body, ...]
    injections: tuple[Body, ...]
    configmap: Body | None
    lease_seconds: float


@dataclass(frozen=True)
class Effective:
    """The control document of a job, the policy that governs it and the injections that slow it."""

    document: ControlDocument
    policy: Governing
    injections: JobInjections


def effective(sources: Sources) -> Effective:
    """Return the wanted document; its generation rises when, and only when, its content changes."""
    spec, job = sources.spec, sources.job
    policy = governing(spec.balancing, job, sources.policies, spec.process_count)
    places = rank_table(spec) if sources.injections else ()
    found = job_injections(sources.injections, job, places, sources.nodes)
    wanted = ControlDocument(
        generation=0,
        lease_seconds=sources.lease_seconds if found.injections else None,  # only injections end with their lease
        balancing=policy.settings,
        injections=list(found.injections),
    )
    numbered = wanted.model_copy(update={"generation": _generation(sources, wanted)})
    return Effective(numbered, policy, found)


def _generation(sources: Sources, wanted: ControlDocument) -> int:
    live = (sources.job.get("status") or {}).get("balancing") or {}
    known, applied = int(live.get("generation") or 0), int(live.get("appliedGeneration") or 0)
    text = ((sources.configmap or {}).get("data") or {}).get(names.CONTROL_FILE)
    present = generation_of(text)
    if present is None or present >= MOST_GENERATION:
        # deleted or spoilt by hand: ranks that follow `known` must not take another content for it
        return max(1, known + (0 < known <= applied))
    return max(known, present + (not holds(text, wanted)), 1)
