"""The status of a StragglerInjection: the ranks that it slows now, what is measured there, and why others are not."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from heterotp_api import reasons
from heterotp_api.conditions import ACCEPTED, FAILED, RUNNING, SUCCEEDED
from heterotp_api.formatting import listed
from heterotp_api.injection import StragglerInjectionSpec
from heterotp_api.slowdown import MOST_SLOWDOWN
from heterotp_api.status import MAX_RANKS
from heterotp_api.trainer_status import TrainerInjection, TrainerRank

from heterotp_operator.reconcile.actions import Event
from heterotp_operator.reconcile.conditions import Conditions
from heterotp_operator.reconcile.deadlines import SILENCE_SECONDS
from heterotp_operator.reconcile.objects import Body, injection_spec, name_of
from heterotp_operator.reconcile.observed import Observed, ended, phase, stamp
from heterotp_operator.reconcile.training_status import rounded

NAMED = 5  # jobs that a message names one by one
NOTHING_LEFT = 0.99  # of a rank's columns: with so many taken it has no matrix products to slow
FAITHFUL = 0.15  # measured this close to asked is as asked
KEPT = {"Paused": "paused", "Finished": "finished"}  # phases that stay while rank 0 does not answer
Why = tuple[str, str]  # a reason and a message
SILENT: Why = (reasons.UNREACHABLE, "rank 0 gives no answer that can be used")  # not which: that would scan ports
NOT_IN_FORCE: Why = (reasons.NOT_IN_FORCE, "not yet in force")
NOT_NOW: dict[str, Why] = {
    "waiting": (reasons.NOT_STARTED, "its start has not come yet"),
    "paused": (reasons.PAUSED, "spec.paused is true"),
    "finished": (reasons.FINISHED, "its stop has come"),
    "lapsed": (reasons.LEASE_EXPIRED, "the lease ran out: the operator did not reach rank 0"),
}


@dataclass(frozen=True)
class ObservedInjection:
    """One injection and the jobs that it selects, each as its own reconcile observes it; `now` is unix seconds."""

    injection: Body
    jobs: tuple[Observed, ...]
    now: float

    @property
    def status(self) -> Body:
        """The live status."""
        return self.injection.get("status") or {}

    @cached_property
    def since(self) -> dict[tuple[str, int], str]:
        """Since when each (job, rank) is slowed, by the live status."""
        rows = self.status.get("ranks") or ()
        return {(row["job"], row["rank"]): row["since"] for row in rows if row.get("since")}


@dataclass(frozen=True)
class Effect:
    """The effect of an injection in one job: its state, a row per rank, and the problem that prevents it."""

    state: str
    rows: tuple[Body, ...] = ()
    problem: str = ""


def injection_status(seen: ObservedInjection) -> tuple[Body, tuple[Event, ...]]:
    """Return the whole status and the events of what is new in it.

    The status stays as it is while the control document of a job is not decided: the job's first reconcile decides it
    and enqueues the injection.
    """
    spec = injection_spec(seen.injection)
    if isinstance(spec, str):
        return _status(seen, "Failed", [], spec, reasons.INVALID_SPEC)
    if any(job.control is None and job.is_valid for job in seen.jobs):
        return seen.status, ()
    effects = {job.name: _effect(seen, spec, job) for job in seen.jobs}
    problems = [f"job {name}: {effect.problem}" for name, effect in sorted(effects.items()) if effect.problem]
    rows = sorted((row for effect in effects.values() for row in effect.rows), key=_order)
    if not effects:
        return _status(seen, "Pending", [], _no_job(spec), reasons.ACCEPTED)
    words = listed(problems, NAMED, "; ")
    refused = all(effect.state == "failed" for effect in effects.values())
    return _status(
        seen, _phase(list(effects.values())), rows, words, reasons.TARGETS_UNKNOWN if refused else reasons.ACCEPTED
    )


def _order(row: Body) -> tuple[bool, str, int]:
    return "since" not in row, row["job"], row["rank"]


def _no_job(spec: StragglerInjectionSpec) -> str:
    if spec.job_ref is not None:
        return f"spec.jobRef.name: '{spec.job_ref.name}': there is no such HeteroTPJob in this namespace"
    return "spec.selector: selects no HeteroTPJob of this namespace"


def _phase(effects: list[Effect]) -> str:
    """Return the phase of all jobs together: Injecting, if it acts in one of them."""
    states = [effect.state for effect in effects]
    for state, word in (
        ("active", "Injecting"),
        ("paused", "Paused"),
        ("pending", "Pending"),
        ("finished", "Finished"),
    ):
        if state in states:
            return word
    return "Failed"


def _status(
    seen: ObservedInjection, phase: str, rows: list[Body], message: str, accepted: str
) -> tuple[Body, tuple[Event, ...]]:
    conditions = Conditions(seen)
    holds = accepted == reasons.ACCEPTED
    conditions.set(ACCEPTED, holds, accepted, "" if holds else message)
    measured = [row["measured"] for row in rows if row.get("since") and row.get("measured")]
    out: Body = {
        "observedGeneration": seen.injection["metadata"].get("generation", 0),
        "phase": phase,
        "ranks": rows[:MAX_RANKS],
        "conditions": conditions.list(),
    }
    if message:
        out["message"] = message[:1024]
    if measured:
        out["measured"] = rounded(statistics.median(measured))
    news = phase != seen.status.get("phase")
    kind = "Warning" if phase == "Failed" else "Normal"
    return out, (Event(kind, phase, message or _what(phase, rows)),) if news and phase != "Pending" else ()


def _what(phase: str, rows: list[Body]) -> str:
    struck = [f"rank {row['rank']} of job {row['job']}" for row in rows if row.get("since")]
    return listed(struck, NAMED) or phase


# -- one job --------------------------------------------------------------------------------------------------


def _effect(seen: ObservedInjection, spec: StragglerInjectionSpec, job: Observed) -> Effect:
    """Return the effect of the injection in a job."""
    if job.holds(SUCCEEDED) or job.holds(FAILED):
        return Effect("finished")
    uid = str(seen.injection["metadata"]["uid"])
    if job.control is None:
        return Effect("failed", problem="its own spec is invalid")
    known = job.control.injections
    if uid in known.problems:
        unbound = spec.targets.nodes is not None and len(job.nodes) < job.spec.process_count
        return Effect("pending" if unbound else "failed", problem=known.problems[uid])
    ranks = next((each.ranks for each in known.injections if each.uid == uid), [])
    reported = _reported(job, uid)
    trainer = job.trainer_status
    if trainer is None and job.holds(RUNNING):
        return _silent(seen, spec, job, ranks)
    known_ranks = {each.rank: each for each in trainer.ranks} if trainer is not None else {}
    rows = tuple(_row(seen, spec, job, rank, reported, known_ranks.get(rank)) for rank in ranks)
    state = reported.state if reported is not None else "paused" if spec.paused else "pending"
    return Effect("pending" if state in ("waiting", "lapsed") else state, rows)


def _silent(seen: ObservedInjection, spec: StragglerInjectionSpec, job: Observed, ranks: Sequence[int]) -> Effect:
    """Return what rank 0 reported last, with the reason Unreachable once it has not answered for long."""
    before = {row["rank"]: row for row in seen.status.get("ranks") or () if row["job"] == job.name}
    report = job.trainer
    lost = report is not None and report.status is None and seen.now - report.since > SILENCE_SECONDS
    silent = _why(SILENT) if lost else {}
    unheard = _why(NOT_IN_FORCE)
    kept = [{"job": job.name, "rank": rank, **before.get(rank, unheard), **silent} for rank in ranks]
    rows = tuple(row | {"asked": spec.slowdown} for row in kept)
    phase = str(seen.status.get("phase") or "")
    state = "active" if any(row.get("since") for row in rows) else KEPT.get(phase, "pending")
    return Effect(state, rows)


def _reported(job: Observed, uid: str) -> TrainerInjection | None:
    """Return rank 0's report of the injection, None while it has not received it."""
    trainer = job.trainer_status
    if trainer is None or trainer.state != "running":
        return None
    return next((each for each in trainer.injections if each.uid == uid), None)


def _row(
    seen: ObservedInjection,
    spec: StragglerInjectionSpec,
    job: Observed,
    rank: int,
    reported: TrainerInjection | None,
    now: TrainerRank | None,
) -> Body:
    """Return a rank's row: slow-down asked for and measured, since when, and why it is absent or another."""
    row: Body = {"job": job.name, "rank": rank, "asked": spec.slowdown}
    absent = _absent(job, rank, reported)
    if absent is not None:
        return {**row, **_why(absent)}
    row["since"] = seen.since.get((job.name, rank)) or stamp(seen.now)
    if now is not None and now.measured_slowdown is not None:
        row["measured"] = rounded(now.measured_slowdown)
    other = _other_effect(spec.slowdown, now)
    return row if other is None else {**row, **_why(other)}


def _why(why: Why) -> Body:
    return {"reason": why[0], "message": why[1]}


def _absent(job: Observed, rank: int, reported: TrainerInjection | None) -> Why | None:
    """Return why nothing is asked of a rank now; None: it is being slowed."""
    pod = job.pod_of.get(rank)
    if pod is None or ended(pod):
        waiting = str(job.status.get("waitingFor") or "") or "the gang does not run"
        return reasons.POD_MISSING, f"its pod is not there: {waiting}"
    if phase(pod) != "Running":
        return reasons.POD_NOT_RUNNING, f"its pod {name_of(pod)} is {phase(pod)}"
    if reported is None:
        return NOT_IN_FORCE
    if reported.state != "active":
        return NOT_NOW[reported.state]
    return None if rank in reported.ranks else (reasons.OTHER_RANKS_TURN, "it is another rank's turn")


def _other_effect(asked: float, now: TrainerRank | None) -> Why | None:
    """Return why a rank that is being slowed is not as slow as asked; None: it is."""
    if now is None:
        return None
    if now.injection_problem:
        return reasons.DEVICE_CANNOT_FOLLOW, now.injection_problem
    taken = now.pruned_ratio + now.migrated_ratio
    if taken >= NOTHING_LEFT or now.share == 0:
        parts = f"{now.migrated_ratio:.0%} migrated away, {now.pruned_ratio:.0%} pruned"
        return reasons.NOTHING_TO_COMPUTE, f"it has nothing to compute: {parts}"
    words = []
    if now.injected_slowdown > 1 and abs(now.injected_slowdown - asked) > 1e-6 * asked:
        bound = ", the most there is" if now.injected_slowdown >= MOST_SLOWDOWN else ""
        words.append(f"with other injections {now.injected_slowdown:g}x is asked of it{bound}")
    measured, wanted = now.measured_slowdown, now.injected_slowdown
    if measured is not None and abs(measured - wanted) > FAITHFUL * wanted:
        words.append(f"{measured:.2f}x is measured where {wanted:.2f}x is asked")
    return (reasons.NOT_AS_ASKED, "; ".join(words)) if words else None
