"""The status of a BalancingPolicy: the jobs that it governs, those that follow it, and the seconds saved."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from heterotp_api import reasons
from heterotp_api.conditions import ACCEPTED, APPLIED, CONFLICT, RUNNING
from heterotp_api.formatting import listed
from heterotp_api.policy import policy_problem
from heterotp_api.status import ENDED_PHASES

from heterotp_operator.reconcile.actions import Event
from heterotp_operator.reconcile.conditions import Conditions
from heterotp_operator.reconcile.objects import Body, at, balancing_of, name_of, policy_selects, policy_spec
from heterotp_operator.reconcile.policies import claimant

MAX_LAGGARDS = 64
NAMED = 5  # jobs that a message names one by one
PROBLEMS = (("False", reasons.INVALID_SPEC), ("True", reasons.GOVERNED_BY_ANOTHER), ("False", reasons.DOES_NOT_FIT))


@dataclass(frozen=True)
class ObservedPolicy:
    """One policy, all policies and jobs of its namespace; `now` is unix seconds."""

    policy: Body
    policies: tuple[Body, ...]
    jobs: tuple[Body, ...]
    now: float

    @property
    def status(self) -> Body:
        """The live status."""
        return self.policy.get("status") or {}


@dataclass(frozen=True)
class SelectedJob:
    """A job that a policy selects; rival, misfit: why the policy does not govern it, for people; empty: it does."""

    body: Body
    rival: str = ""
    misfit: str = ""

    @cached_property
    def status(self) -> Body:
        """The live status."""
        return self.body.get("status") or {}

    @cached_property
    def balancing(self) -> Body:
        """status.balancing of the job."""
        return self.status.get("balancing") or {}

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self.status.get("phase") in ENDED_PHASES

    def follows(self, policy: Body) -> bool:
        """Return whether all ranks follow this version of the policy."""
        return self._published(policy) > 0 and int(self.balancing.get("appliedGeneration") or 0) >= self._published(
            policy
        )

    def _published(self, policy: Body) -> int:
        """Return the generation of the control document that holds this version of the policy, 0: none does yet."""
        known = self.balancing.get("policy"), self.balancing.get("policyGeneration")
        wanted = name_of(policy), policy["metadata"].get("generation")
        return int(self.balancing.get("generation") or 0) if known == wanted else 0

    def lag(self, policy: Body) -> Body:
        """Return published and applied generation of the control document."""
        applied = int(self.balancing.get("appliedGeneration") or 0)
        return {"job": name_of(self.body), "published": self._published(policy), "applied": applied}


def policy_status(seen: ObservedPolicy) -> tuple[Body, tuple[Event, ...]]:
    """Return the whole status and the events of what is new in it."""
    conditions = Conditions(seen)
    spec = policy_spec(seen.policy)
    out: Body = {"observedGeneration": seen.policy["metadata"].get("generation", 0)}
    if isinstance(spec, str):
        conditions.set(ACCEPTED, False, reasons.INVALID_SPEC, spec)
        counts, jobs = {"selectedJobs": 0, "appliedJobs": 0, "laggards": []}, []
    else:
        conditions.set(ACCEPTED, True, reasons.ACCEPTED)
        leaving = seen.policy["metadata"].get("deletionTimestamp")  # it governs nothing any more
        jobs = [] if leaving else [_seen(job, seen) for job in seen.jobs if policy_selects(seen.policy, job)]
        counts = _counts(seen, jobs)
    _show_conflict(conditions, jobs)
    _show_applied(conditions, seen, jobs)
    saved = sum(float(job.balancing.get("savedSeconds") or 0.0) for job in jobs if _governed(job))
    out |= {**counts, "savedSeconds": float(f"{saved:.3g}"), "conditions": conditions.list()}
    return out, _news(seen, conditions)


def _seen(job: Body, seen: ObservedPolicy) -> SelectedJob:
    balancing = balancing_of(job)
    if isinstance(balancing, str):
        return SelectedJob(job, misfit="its own spec is invalid")
    if balancing.policy is not None:
        return SelectedJob(job, rival="its own inline policy")
    if balancing.policy_ref is not None and balancing.policy_ref.name != name_of(seen.policy):
        return SelectedJob(job, rival=f"BalancingPolicy {balancing.policy_ref.name}")
    winner = claimant(balancing, job, seen.policies)
    if winner is not None and name_of(winner) != name_of(seen.policy):
        return SelectedJob(job, rival=f"BalancingPolicy {name_of(winner)}")
    settings = policy_spec(seen.policy)
    assert not isinstance(settings, str)
    ranks = at(job, "spec", "tensorParallelDegree")
    if not isinstance(ranks, int):
        return SelectedJob(job, misfit="its own spec is invalid")
    wrong = policy_problem(settings.settings, ranks)
    return SelectedJob(job, misfit=f"spec.{wrong}" if wrong is not None else "")


def _governed(job: SelectedJob) -> bool:
    return not (job.rival or job.misfit)


def _live(jobs: Iterable[SelectedJob]) -> list[SelectedJob]:
    return [job for job in jobs if not job.rival and not job.ended]


def _lagging(seen: ObservedPolicy, jobs: Iterable[SelectedJob]) -> list[SelectedJob]:
    """Return the running jobs that do not follow yet; others follow from their start."""
    running = (job for job in _live(jobs) if job.status.get("phase") == RUNNING)
    return [job for job in running if job.misfit or not job.follows(seen.policy)]


def _counts(seen: ObservedPolicy, jobs: list[SelectedJob]) -> Body:
    live = _live(jobs)
    lagging = [job.lag(seen.policy) for job in _lagging(seen, jobs)]
    return {
        "selectedJobs": len(live),
        "appliedJobs": sum(1 for job in live if _governed(job) and job.follows(seen.policy)),
        "laggards": sorted(lagging, key=lambda lag: str(lag["job"]))[:MAX_LAGGARDS],
    }


def _show_conflict(conditions: Conditions, jobs: list[SelectedJob]) -> None:
    lost = [job for job in jobs if job.rival and not job.ended]
    if not lost:
        conditions.clear(CONFLICT, reasons.NO_CONFLICT)
        return
    named = listed([f"job {name_of(job.body)} follows {job.rival}" for job in lost], NAMED, "; ")
    words = f"{named}: a job's own choice comes first, then the oldest policy"
    conditions.set(CONFLICT, True, reasons.GOVERNED_BY_ANOTHER, words)


def _show_applied(conditions: Conditions, seen: ObservedPolicy, jobs: list[SelectedJob]) -> None:
    live, lagging = _live(jobs), _lagging(seen, jobs)
    misfits = [job for job in live if job.misfit]
    if not conditions.holds(ACCEPTED) or not live:
        conditions.set(
            APPLIED, False, reasons.NO_JOBS, "it governs no job" if conditions.holds(ACCEPTED) else "invalid"
        )
    elif misfits:
        words = listed([f"job {name_of(job.body)}: {job.misfit}" for job in misfits], NAMED, "; ")
        conditions.set(APPLIED, False, reasons.DOES_NOT_FIT, f"{words}: AUTO without loss balances it instead")
    elif lagging:
        words = listed([name_of(job.body) for job in lagging], NAMED)
        conditions.set(APPLIED, False, reasons.PUBLISHING, f"not yet in force in: {words}")
    else:
        waiting = sum(1 for job in live if job.status.get("phase") != RUNNING)
        words = f"in force in all running jobs; {waiting} that do not run take it when they start" if waiting else ""
        conditions.set(APPLIED, True, reasons.IN_FORCE, words)


def _news(seen: ObservedPolicy, conditions: Conditions) -> tuple[Event, ...]:
    """Return an event for each problem that is new, or that another version of the policy has as well."""
    before = {c["type"]: (c["status"], c.get("reason")) for c in seen.status.get("conditions") or ()}
    known = seen.status.get("observedGeneration")
    edited = known is not None and known != seen.policy["metadata"].get("generation", 0)
    events = []
    for condition in conditions.list():
        if (condition["status"], condition["reason"]) not in PROBLEMS:
            continue
        if edited or before.get(condition["type"]) != (condition["status"], condition["reason"]):
            events.append(Event("Warning", condition["reason"], condition["message"]))
    return tuple(events)
