"""The first control document of a local run: the policy and the injections of the manifest that apply to its job."""

from collections.abc import Sequence
from dataclasses import dataclass

from heterotp_api.control import LOSSLESS_AUTO, ControlDocument, ControlInjection, control_injection
from heterotp_api.elastic import elastic_problem
from heterotp_api.injection import StragglerInjection
from heterotp_api.job import HeteroTPJob
from heterotp_api.load import Kind
from heterotp_api.policy import BalancingPolicy, BalancingSettings, policy_problem
from heterotp_api.ranks import RankPlace, rank_table
from heterotp_api.selector import matches
from heterotp_api.targets import resolve


@dataclass(frozen=True)
class Chosen:
    """The job of a manifest, its first control document, and notes for the user."""

    job: HeteroTPJob
    control: ControlDocument
    notes: tuple[str, ...]


def choose(items: Sequence[Kind]) -> Chosen:
    """Return the job of a manifest; raise ValueError with field and value where it cannot run as written."""
    jobs = [item for item in items if isinstance(item, HeteroTPJob)]
    if len(jobs) != 1:
        raise ValueError(f"kind: {len(jobs)} HeteroTPJob objects: a run needs exactly one HeteroTPJob")
    (job,) = jobs
    balancing, left_policies = _balancing(job, [item for item in items if isinstance(item, BalancingPolicy)])
    injections, left_injections = _injections(job, [item for item in items if isinstance(item, StragglerInjection)])
    control = ControlDocument(generation=1, balancing=balancing, injections=injections)
    return Chosen(job, control, (*left_policies, *left_injections))


def unfit_policy(chosen: Chosen) -> str | None:
    """Return what the job's gang cannot do of the policy in force, as `field: value: what would be right`."""
    elastic = chosen.job.spec.run_policy.elastic
    return None if elastic is None else elastic_problem(chosen.control.balancing)


def _balancing(job: HeteroTPJob, policies: Sequence[BalancingPolicy]) -> tuple[BalancingSettings, list[str]]:
    """Return the policy in force, chosen as the operator does with file order in place of age, and notes."""
    balancing = job.spec.balancing
    if balancing.policy is not None:
        return _fitting(balancing.policy, job, "spec.balancing.policy"), []
    for policy in policies:
        if _why_not_policy(policy, job) is None:
            return _fitting(policy.spec.settings, job, f"BalancingPolicy {policy.metadata.name}: spec"), []
    notes = [f"policy {policy.metadata.name} is left out: {_why_not_policy(policy, job)}" for policy in policies]
    if balancing.policy_ref is not None:
        notes.append(f"policy {balancing.policy_ref.name} is not in the manifest: AUTO without loss is used")
    return LOSSLESS_AUTO, notes


def _fitting(settings: BalancingSettings, job: HeteroTPJob, path: str) -> BalancingSettings:
    problem = policy_problem(settings, job.spec.process_count)
    if problem is not None:
        raise ValueError(f"{path}.{problem}")
    return settings


def _why_not_policy(policy: BalancingPolicy, job: HeteroTPJob) -> str | None:
    reference = job.spec.balancing.policy_ref
    if reference is not None and policy.metadata.name != reference.name:
        return f"the job names policy {reference.name}"
    if (elsewhere := _elsewhere(policy, job)) is not None:
        return elsewhere
    if reference is None and not matches(policy.spec.selector, job.metadata.labels):
        return "no policyRef names it, and it does not select the job"
    return None


def _elsewhere(item: Kind, job: HeteroTPJob) -> str | None:
    there, here = item.metadata.namespace, job.metadata.namespace
    return None if there == here else f"it is in namespace {there}, the job in {here}"


def _injections(job: HeteroTPJob, injections: Sequence[StragglerInjection]) -> tuple[list[ControlInjection], list[str]]:
    """Return the injections of the job and notes on the others."""
    places = rank_table(job.spec)
    found: dict[str, ControlInjection] = {}
    notes: list[str] = []
    for injection in injections:
        name = injection.metadata.name
        if (why := _why_not_injection(injection, job)) is not None:
            notes.append(f"injection {name} is left out: {why}")
            continue
        resolved = _resolved(injection, places)
        if resolved.uid in found:
            field = "uid" if injection.metadata.uid else "name"
            raise ValueError(f"StragglerInjection {name}: metadata.{field}: '{resolved.uid}' must be unique")
        found[resolved.uid] = resolved
    return list(found.values()), notes


def _why_not_injection(injection: StragglerInjection, job: HeteroTPJob) -> str | None:
    spec = injection.spec
    if (elsewhere := _elsewhere(injection, job)) is not None:
        return elsewhere
    if spec.job_ref is not None and spec.job_ref.name != job.metadata.name:
        return f"it is for job {spec.job_ref.name}"
    if spec.job_ref is None and not matches(spec.selector, job.metadata.labels):
        return "it does not select the job"
    return (
        None if spec.targets.nodes is None else "spec.targets.nodes needs a cluster; here, name ranks or workerGroups"
    )


def _resolved(injection: StragglerInjection, places: Sequence[RankPlace]) -> ControlInjection:
    try:
        metadata, spec = injection.metadata, injection.spec
        uid = str(metadata.uid) if metadata.uid else None
        return control_injection(metadata.name, uid, spec, resolve(spec.targets, places, None))
    except ValueError as error:
        raise ValueError(f"StragglerInjection {injection.metadata.name}: {error}") from None
