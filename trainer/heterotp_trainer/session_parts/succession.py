"""How a session goes on without ranks that were lost: who holds what, and the move to the survivors' shares."""

from collections.abc import Sequence
from dataclasses import dataclass

from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.launch.rendezvous import Gang, PeerLostError, next_gang
from heterotp_trainer.membership.buddies import buddies
from heterotp_trainer.membership.errors import GoneError
from heterotp_trainer.membership.peers import Decision
from heterotp_trainer.membership.succession import inherited, shared_out
from heterotp_trainer.membership.survivors import newest, unprotected
from heterotp_trainer.resharding.unit_mover import UnitMover
from heterotp_trainer.watched import Watched

NO_MOVE = "a rank was lost while units were taken over from another one"


@dataclass(frozen=True)
class Regrouped:
    """Where all survivors go on: after this iteration, with these ranks lost.

    evaluated: the last iteration that all of them have evaluated. stop: whether a stop was agreed on before.
    """

    iteration: int
    lost: tuple[int, ...]
    evaluated: int
    stop: bool


def succeed(
    watched: Watched, gang: Gang, environment: RankEnvironment, *, evaluated: int, stop: bool, admitting: bool = False
) -> tuple[Gang, RankEnvironment, Regrouped]:
    """Take over what lost ranks held, and share it out anew (all survivors).

    admitting: whether a rank was being let in, which then may be the only one that is lost.
    Raises PeerLostError where the survivors do not hold everything, or must not go on: then only a restart from a
    checkpoint helps.
    """
    before, guard = gang.membership, watched.protection
    assert before is not None and guard is not None
    mover = watched.balancer.resharder.unit_mover
    plan = "" if mover.moving else watched.tp.unit_plan.hash
    own = guard.left(before.peers.origin, plan, evaluated=evaluated, stop=stop, admitting=admitting)
    new, place, decision = next_gang(gang, environment, own, watched.speeds)
    members = before.generation.members
    mirrored = {members[rank]: members[buddy] for rank, buddy in enumerate(buddies(before.nodes))}
    if why := unprotected(decision.lefts, mirrored, members):
        raise PeerLostError(f"training cannot go on without a restart: {why}")
    last = newest(decision.lefts)
    watched.catch_up(last.applied, last.norm)
    try:
        _take_over(watched, new, place, decision, members)
    except GoneError as error:
        raise PeerLostError(f"training cannot go on without a restart: {NO_MOVE}: {error}") from None
    lost = tuple(each for each in members if each not in place.members)
    stopping = any(left.stop for left in decision.lefts)
    return new, place, Regrouped(last.applied, lost, min(left.evaluated for left in decision.lefts), stopping)


def _take_over(
    watched: Watched, gang: Gang, place: RankEnvironment, decision: Decision, members: Sequence[int]
) -> None:
    """Own the units of the lost ranks that this one mirrors, then move units to the survivors' shares (all of them)."""
    guard, tp, membership = watched.protection, watched.tp, gang.membership
    assert guard is not None and membership is not None
    left = [members.index(each) for each in place.members]
    heirs = {rank: guard.mirrors.buddies[rank] for rank in range(len(members)) if rank not in left}
    held = inherited(tp.unit_plan, heirs, left)
    guard.mirrors.take_over([rank for rank, heir in heirs.items() if heir == tp.rank], held, place.rank)
    speeds = tuple(decision.speeds[rank] for rank in left) if decision.speeds else ()
    tp.regroup(gang.tp_group, gang.control_group, place.rank, held, speeds)
    mover = UnitMover(tp, watched.parameters, watched.optimizer, lambda parameter: ())
    mover.move(shared_out(held, speeds))
    watched.regrouped(place.workdir if place.rank == 0 else None)
    watched.protect(guard.applied, membership.guard, membership.nodes)
