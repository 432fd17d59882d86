"""One job under every strategy, from the onset of a slow-down on: predicted, nothing is run. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from heterotp_api.policy import BalancingSettings
from heterotp_api.strategies import STRATEGIES, Strategy
from heterotp_trainer.balancing.reshard_problem import ReshardProblem
from heterotp_trainer.balancing.simulation import Iteration, Machine, Simulation

BEFORE, AFTER = 15, 60  # iterations before and after the onset
EVICT = "evict"
COMMON = ("window", "enter", "exit", "replan_threshold")


@dataclass(frozen=True)
class Outcome:
    """What a strategy comes to: seconds of an iteration in the end, share deleted, what moving took, and why.

    settled: iterations from the onset until the last change; paid_back: iterations until a move has paid, None without.
    """

    name: str
    seconds: float
    deleted: float
    moved: bool
    moved_seconds: float
    settled: int
    paid_back: float | None
    reason: str
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Prospect:
    """All strategies for one slow-down, and what they are held against: seconds of an iteration."""

    homogeneous: float
    untouched: float
    limit: float
    outcomes: tuple[Outcome, ...]


def policies(
    chis: Sequence[float], job: BalancingSettings | None = None, loss: float | None = None
) -> dict[str, BalancingSettings]:
    """Return every strategy by name, with what the job's own policy says of it.

    loss: the share of work that ZERO and SEMI may delete; None: as the job says, else all that helps.
    """
    own = job or BalancingSettings()
    slow = [rank for rank, chi in enumerate(chis) if chi > 1]
    found: dict[str, BalancingSettings] = {name: _policy(name, own, loss) for name in get_args(Strategy)}
    if slow and len(slow) < len(chis):
        found[EVICT] = BalancingSettings.model_validate({"strategy": "RESHARD", "reshard": {"evict": slow}})
    return found


def _policy(name: Strategy, own: BalancingSettings, loss: float | None) -> BalancingSettings:
    """Return the job's policy with another strategy: fields of all strategies, and of its blocks those that fit."""
    fields = {key: getattr(own, key) for key in own.model_fields_set if key in COMMON}
    traits = STRATEGIES[name]
    for block in traits.blocks:
        value = getattr(own, block)
        if value is not None and getattr(value, "fixed_ratio", None) is None:
            fields[block] = value
    bound = own.max_pruned_share if loss is None or not traits.pruned_share else loss
    if bound is not None and traits.prunes:
        fields["max_pruned_share"] = bound
    return BalancingSettings.model_validate({"strategy": name, **fields})


def prospect(
    machine: Machine, chis: Sequence[float], job: BalancingSettings | None = None, loss: float | None = None
) -> Prospect:
    """Return what every strategy would make of these slow-downs; job, loss: see policies."""
    outcomes = [_outcome(name, machine, policy, chis) for name, policy in policies(chis, job, loss).items()]
    untouched = next(each.seconds for each in outcomes if each.name == "None")
    homogeneous = Simulation(machine, BalancingSettings(strategy="None")).step([1.0] * len(chis)).seconds
    return Prospect(
        homogeneous, untouched, limit_seconds(machine, chis), tuple(_paid(each, untouched) for each in outcomes)
    )


def limit_seconds(machine: Machine, chis: Sequence[float]) -> float:
    """Return the fluid limit of an iteration (algorithms, section 5)."""
    run = Simulation(machine, BalancingSettings(strategy="None"))
    return ReshardProblem(machine.costs, run.seen(chis), machine.shards).fluid + machine.fixed + machine.wait


def _outcome(name: str, machine: Machine, policy: BalancingSettings, chis: Sequence[float]) -> Outcome:
    run = Simulation(machine, BalancingSettings(strategy="None") if name == EVICT else policy)
    run.run([1.0] * len(chis), BEFORE)
    run.policy = policy  # who evicts, evicts whom it sees to be slow
    after = [each for count, each in run.run(chis, AFTER) for _ in range(count)]
    shards = run.plan.ownership.shards or machine.shards
    return Outcome(
        name,
        after[-1].seconds,
        after[-1].deleted,
        any(each.moved for each in after),
        sum(each.moved_seconds for each in after),
        _settled(after),
        None,
        run.plan.reason,
        tuple(shards.share(rank) for rank in range(shards.ranks)),
    )


def _settled(iterations: Sequence[Iteration]) -> int:
    """Return after how many iterations the last one's time was reached for good."""
    last = iterations[-1].seconds
    return max(
        (number + 1 for number, each in enumerate(iterations) if abs(each.seconds - last) > 0.01 * last), default=0
    )


def _paid(outcome: Outcome, untouched: float) -> Outcome:
    gain = untouched - outcome.seconds
    if not outcome.moved or gain <= 0:
        return outcome
    return replace(outcome, paid_back=outcome.moved_seconds / gain)
