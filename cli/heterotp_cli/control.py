"""The first control document of a local run: the policy that the manifest asks for."""

from collections.abc import Sequence
from dataclasses import dataclass

from heterotp_api.control import LOSSLESS_AUTO, ControlDocument
from heterotp_api.job import HeteroTPJob
from heterotp_api.load import Kind
from heterotp_api.policy import BalancingPolicy, BalancingSettings


@dataclass(frozen=True)
class Chosen:
    """The job of a manifest, its first control document and what the user should know."""

    job: HeteroTPJob
    control: ControlDocument
    notes: tuple[str, ...]


def choose(items: Sequence[Kind]) -> Chosen:
    """Return the one job of a manifest; raise ValueError when there is none, or more than one."""
    jobs = [item for item in items if isinstance(item, HeteroTPJob)]
    if len(jobs) != 1:
        raise ValueError(f"kind: {len(jobs)} HeteroTPJob objects: a run needs exactly one HeteroTPJob")
    policies = [item for item in items if isinstance(item, BalancingPolicy)]
    settings, notes = _settings(jobs[0], policies)
    others = [item for item in items if not isinstance(item, (HeteroTPJob, BalancingPolicy))]
    notes += [f"{item.kind} {item.metadata.name} is left out: a local run reads only job and policy" for item in others]
    return Chosen(jobs[0], ControlDocument(generation=1, balancing=settings), tuple(notes))


def _settings(job: HeteroTPJob, policies: Sequence[BalancingPolicy]) -> tuple[BalancingSettings, list[str]]:
    balancing = job.spec.balancing
    if balancing.policy is not None:
        return balancing.policy, []
    if balancing.policy_ref is None:
        return LOSSLESS_AUTO, []
    name = balancing.policy_ref.name
    for policy in policies:
        if policy.metadata.name == name:
            fields = {key: getattr(policy.spec, key) for key in BalancingSettings.model_fields}
            return BalancingSettings(**fields), []
    return LOSSLESS_AUTO, [f"policy {name} is not in the manifest: AUTO without loss is used"]
