"""The policy that governs a job: its inline policy, the one it names, the oldest that selects it, or lossless AUTO."""

from collections.abc import Iterable
from dataclasses import dataclass

from heterotp_api import reasons
from heterotp_api.control import LOSSLESS_AUTO
from heterotp_api.job import Balancing
from heterotp_api.policy import DEFAULT_POLICY, INLINE_POLICY, BalancingSettings, policy_problem

from heterotp_operator.reconcile.objects import Body, in_order, name_of, policy_selects, policy_spec


@dataclass(frozen=True)
class Governing:
    """What governs a job; generation is the policy object's, 0 without one.

    problem, reason: why it is not what was asked for, for people and as a constant; empty: it is.
    """

    settings: BalancingSettings = LOSSLESS_AUTO
    name: str = DEFAULT_POLICY
    generation: int = 0
    problem: str = ""
    reason: str = ""


def claimant(balancing: Balancing, job: Body, policies: Iterable[Body]) -> Body | None:
    """Return the policy object that governs the job, None without one; of several that select it the oldest."""
    if balancing.policy is not None:
        return None
    reference = balancing.policy_ref
    wanting = (policy for policy in in_order(policies) if policy_selects(policy, job))
    return next((policy for policy in wanting if reference is None or name_of(policy) == reference.name), None)


def governing(balancing: Balancing, job: Body, policies: Iterable[Body], ranks: int) -> Governing:
    """Return what governs a job of so many ranks.

    A policy that does not fit the job is replaced by the default, never by another policy object.
    """
    if balancing.policy is not None:
        return _fitting(balancing.policy, Governing(balancing.policy, INLINE_POLICY), "spec.balancing.policy", ranks)
    found = claimant(balancing, job, policies)
    if found is None:
        reference = balancing.policy_ref
        if reference is None:
            return Governing()
        words = (
            f"spec.balancing.policyRef.name: '{reference.name}': there is no such BalancingPolicy: AUTO without loss"
        )
        return Governing(problem=words, reason=reasons.POLICY_NOT_FOUND)
    spec, name = policy_spec(found), name_of(found)
    if isinstance(spec, str):
        return Governing(problem=f"BalancingPolicy {name}: {spec}", reason=reasons.POLICY_INVALID)
    asked = Governing(spec.settings, name, int(found["metadata"].get("generation") or 0))
    return _fitting(spec.settings, asked, f"BalancingPolicy {name}: spec", ranks)


def _fitting(settings: BalancingSettings, asked: Governing, path: str, ranks: int) -> Governing:
    wrong = policy_problem(settings, ranks)
    if wrong is None:
        return asked
    return Governing(problem=f"{path}.{wrong}", reason=reasons.POLICY_DOES_NOT_FIT)
