"""How a session lets in a rank that came back: the state goes to it, then units.

Until all ranks have passed the last barrier the ranks keep their tensors and mirrors of before, so that they can go on
without the newcomer, or without another rank that is lost meanwhile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from heterotp_api.ranks import rank_table

from heterotp_trainer.launch.admission import Entry, come_in, let_in, speeds_of
from heterotp_trainer.launch.door import key_of
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.launch.facts import Facts
from heterotp_trainer.launch.knock import Door, Newcomer
from heterotp_trainer.launch.rendezvous import Gang
from heterotp_trainer.membership.succession import shared_out, speed_of_newcomer, widened
from heterotp_trainer.plans.unit_plan import FAMILIES, UnitPlan
from heterotp_trainer.protection import replica
from heterotp_trainer.resharding.sharded_state import states_of
from heterotp_trainer.resharding.unit_mover import UnitMover
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec
from heterotp_trainer.watched import Watched


@dataclass(frozen=True)
class Handed:
    """What the newcomer hears beside the model: see Watched.facts, and the session's own."""

    iteration: int
    norm: float
    losses: dict[int, float]
    session: dict[str, Any]


class Entrance:
    """Where ranks that were started again wait: a door on rank 0, nothing on the others."""

    def __init__(self) -> None:
        self._door: Door | None = None

    def open(self, gang: Gang, environment: RankEnvironment, *, unlike: bool) -> None:
        """Open the door on rank 0, where ranks may come back; unlike: see Gang."""
        self.close()
        elastic, membership = environment.spec.run_policy.elastic, gang.membership
        if elastic is None or membership is None or environment.rank != 0 or environment.workdir is None:
            return
        if not elastic.rejoins or not environment.secret:
            return
        ranks, members = environment.spec.process_count, environment.origins
        arithmetic = None if unlike else gang.facts[0].arithmetic

        def problem(newcomer: Newcomer) -> str:
            return problem_of(newcomer, ranks, members, arithmetic)

        self._door = Door(key_of(environment), environment.workdir, environment.attempt, membership.peers.host, problem)

    @property
    def waiting(self) -> bool:
        """Whether a rank waits to be let in."""
        return self._door is not None and self._door.waiting

    def let_in(
        self, watched: Watched, gang: Gang, environment: RankEnvironment, session: Mapping[str, Any]
    ) -> tuple[Gang, RankEnvironment, int] | None:
        """Let in the rank that waits (all ranks); return the new gang, this rank's place, and who came (its origin).

        session: what it must know of the session. None: it has gone away. Raises GoneError where a rank is lost
        meanwhile; this one then holds what it did before.
        """
        found = let_in(gang, environment, self._door)
        if found is None:
            return None
        after, place, entry = found
        assert gang.membership is not None and after.membership is not None
        try:
            hand_over(watched, after, place, entry, session)
        except BaseException:
            after.membership.generation.leave()
            raise
        gang.membership.generation.leave()
        self.close()
        return after, place, entry.decision.members[entry.newcomer]

    def close(self, *, ended: bool = False) -> None:
        """Close the door; ended: for ever."""
        if self._door is not None:
            self._door.close(ended=ended)
            self._door = None


def problem_of(newcomer: Newcomer, ranks: int, members: Sequence[int], arithmetic: str | None) -> str:
    """Return why a rank cannot come back; empty: it can. Pure.

    ranks: of the whole job; members: origins of those that live; arithmetic: that its device must have, None: any.
    """
    if not 0 <= newcomer.origin < ranks:
        return f"rank {newcomer.origin} does not exist"
    if newcomer.origin in members:
        return f"rank {newcomer.origin} lives"
    if newcomer.facts.torch_device != "cpu":
        return f"{newcomer.facts.device} is not supported with runPolicy.elastic"
    if arithmetic is not None and newcomer.facts.arithmetic != arithmetic:
        return f"{newcomer.facts.device} rounds otherwise than the devices of the others"
    return ""


def enter_gang(watched: Watched, environment: RankEnvironment, facts: Facts) -> tuple[Gang, RankEnvironment, Handed]:
    """Knock, be let in, and take the state (the newcomer); see `come_in` for errors, and GoneError."""
    gang, place, entry = come_in(environment, facts)
    return gang, place, take(watched, gang, place, entry)


class Undo:
    """Gives a rank the tensors and the place back that it has now; it holds one more share of memory."""

    def __init__(self, watched: Watched) -> None:
        tp, parameters = watched.tp, watched.parameters.values()
        self._tp = tp
        self._states = states_of([p for p in parameters if shard_spec(p) is not None], watched.optimizer, lambda _: ())
        self._before = tp.group, tp.control_group, tp.rank, tp.ranks, tp.unit_plan, tp.speeds

    def put_back(self) -> None:
        """Undo a move that has not ended on all ranks."""
        tp = self._tp
        for state in self._states:
            state.put(state.tensor)
        tp.group, tp.control_group, tp.rank, tp.ranks, tp.unit_plan, tp.speeds = self._before
        tp.links.clear()


def hand_over(watched: Watched, gang: Gang, place: RankEnvironment, entry: Entry, session: Mapping[str, Any]) -> None:
    """Give the newcomer the state, and share all units out anew (all ranks but the newcomer).

    session: what it must know of the session. Raises GoneError where a rank is lost meanwhile; this one then holds
    what it did before.
    """
    tp, guard = watched.tp, watched.protection
    assert guard is not None
    members = [each for rank, each in enumerate(entry.decision.members) if rank != entry.newcomer]
    declared = [each.relative_speed for each in rank_table(place.spec)]
    known = speeds_of(watched.speeds, members)
    known[entry.decision.members[entry.newcomer]] = speed_of_newcomer(
        known, declared, entry.decision.members[entry.newcomer]
    )
    speeds = tuple(known[each] for each in entry.decision.members)
    if place.rank == entry.source:
        facts = {
            "iteration": guard.applied,
            "norm": guard.norm,
            "losses": list(map(list, guard.losses.items())),
            "plan": {family: [list(map(list, each)) for each in _owned(tp.unit_plan, family)] for family in FAMILIES},
            "weights": list(tp.unit_plan.weights),
            "speeds": list(speeds),
            "watched": watched.facts(),
            "session": dict(session),
        }
        replica.send(watched.contents, facts, tp.device.torch_device, entry.newcomer, gang.control_group)
    undo = Undo(watched)
    try:
        _share_out(watched, gang, place, widened(tp.unit_plan, entry.newcomer), speeds)
    except BaseException:
        undo.put_back()
        raise


def take(watched: Watched, gang: Gang, place: RankEnvironment, entry: Entry) -> Handed:
    """Take the state that the others hand over, then units (the newcomer); return the rest of what they told."""
    device = watched.tp.device.torch_device
    facts = replica.receive(watched.contents, device, entry.source, gang.control_group)
    heads, ffn, vocab = (tuple(tuple(map(tuple, each)) for each in facts["plan"][family]) for family in FAMILIES)
    plan = UnitPlan(heads, ffn, vocab, tuple(facts["weights"]))
    watched.came_back(facts["watched"], facts["iteration"], facts["norm"], {i: loss for i, loss in facts["losses"]})
    _share_out(watched, gang, place, widened(plan, entry.newcomer), tuple(facts["speeds"]))
    return Handed(facts["iteration"], facts["norm"], {i: loss for i, loss in facts["losses"]}, facts["session"])


def _share_out(watched: Watched, gang: Gang, place: RankEnvironment, held: UnitPlan, speeds: tuple[float, ...]) -> None:
    """Move units to the shares of all ranks, and mirror them (all ranks); held: the newcomer owns nothing yet."""
    tp, membership, guard = watched.tp, gang.membership, watched.protection
    assert membership is not None and guard is not None
    tp.regroup(gang.tp_group, gang.control_group, place.rank, held, speeds)
    UnitMover(tp, watched.parameters, watched.optimizer, lambda parameter: ()).move(shared_out(held, speeds))
    mirrors = watched.mirrors(membership.guard, membership.nodes)
    mirrors.refresh()
    with tp.where.waiting("all ranks to hold their units"):
        dist.barrier(group=gang.control_group)
    guard.take(guard.applied, guard.norm, mirrors)
    watched.regrouped(place.workdir if place.rank == 0 else None)


def _owned(plan: UnitPlan, family: Any) -> list[Any]:
    return [plan.ranges(family, rank) for rank in range(plan.ranks)]
