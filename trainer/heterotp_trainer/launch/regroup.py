"""A gang with runPolicy.elastic: its first generation, and the next one without the ranks that were lost."""

import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.launch.json_messages import gather_json
from heterotp_trainer.membership.errors import AloneError, GoneError
from heterotp_trainer.membership.groups import Generation, LeavableGroup, make_group
from heterotp_trainer.membership.meeting import Lease, Meeting, open_store
from heterotp_trainer.membership.peers import Address, Decision, Peers, connect, listen
from heterotp_trainer.membership.survivors import Left

LOOPBACK = ("127.0.0.1", "localhost")


@dataclass
class Membership:
    """This rank's part in a gang that may lose ranks.

    guard: the group of what travels to buddies. nodes: where each member runs, by rank. said: how often this rank has
    given up a generation.
    """

    generation: Generation
    peers: Peers
    meeting: Meeting
    guard: LeavableGroup
    nodes: tuple[str, ...]
    said: int = 0


@dataclass(frozen=True)
class Groups:
    """The groups of one generation; see Gang, and Membership for `guard`."""

    control: LeavableGroup
    tp: LeavableGroup
    exchange: LeavableGroup
    guard: LeavableGroup


def make_groups(generation: Generation, store: Store, rank: int, timeout: timedelta) -> Groups:
    """Return the groups of a generation (all ranks); raises GoneError where it is given up meanwhile."""
    made = [make_group(generation, store, name, rank, timeout) for name in ("control", "tp", "exchange", "guard")]
    dist.barrier(group=made[0])
    return Groups(*made)


def first_generation(environment: RankEnvironment) -> Generation:
    """Return the generation of all ranks."""
    return Generation(0, tuple(range(environment.ranks)))


def join(environment: RankEnvironment, generation: Generation, groups: Groups, timeout: timedelta) -> Membership:
    """Connect this rank to all others (all ranks); from then on their loss is seen."""
    elastic = environment.spec.run_policy.elastic
    assert elastic is not None
    host = host_of(environment)
    with listen(host) as listener:
        own = Address(host, listener.getsockname()[1], secrets.token_hex(16), socket.gethostname())
        addresses = gather_json(own, Address, environment.ranks, groups.control)
        sockets = connect(environment.rank, listener, addresses)
    peers = Peers(environment.rank, host, sockets, elastic.silent_seconds)
    peers.follow(generation, {})
    lease = Lease(environment.workdir, environment.attempt)
    meeting = Meeting(peers, lease, elastic.min_ranks, timeout)
    return Membership(generation, peers, meeting, groups.guard, tuple(each.node for each in addresses))


def host_of(environment: RankEnvironment) -> str:
    """Return the address at which others reach this rank: that of its way to rank 0."""
    if environment.master_address in LOOPBACK:
        return LOOPBACK[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # sends nothing
        probe.connect((environment.master_address, environment.master_port))
        return str(probe.getsockname()[0])


@dataclass(frozen=True)
class NextGeneration:
    """A generation that all its members have entered."""

    decision: Decision
    groups: Groups
    membership: Membership
    heartbeats: Store


def next_generation(settled: Membership, own: Left, speeds: Sequence[float], timeout: timedelta) -> NextGeneration:
    """Agree on the next generation and enter it (all survivors).

    settled: the generation that was given up; own: what this rank holds; speeds: of its ranks. Raises AloneError where
    this rank must not go on. Where further ranks are lost meanwhile, another generation follows.
    """
    generation, said = settled.generation, settled.said
    while True:
        generation.leave()
        said += 1
        left = replace(own, number=said, generation=generation.number)
        decision, store = settled.meeting.agree(left, generation.members, speeds)
        if not set(decision.members) <= set(settled.generation.members):
            raise AloneError("the others go on with a rank that came back, which this one did not see enter")
        generation = Generation(decision.generation, decision.members)
        settled.peers.follow(generation, {each.rank: each.number for each in decision.lefts})
        with suppress(GoneError):
            return _entered(settled, decision, generation, store, said, timeout)


def entered(
    decision: Decision, generation: Generation, rank: int, served: TCPStore | None, timeout: timedelta
) -> tuple[Groups, Store]:
    """Return the groups of a decided generation and the store of its heartbeats (all its members).

    served: the store, where this rank serves it. Raises GoneError where the generation is given up meanwhile.
    """

    def client() -> TCPStore:
        return open_store(decision.host, decision.port, len(decision.members), timeout)

    store = served if served is not None else generation.in_thread(client)
    groups = make_groups(generation, PrefixStore(decision.prefix, store), rank, timeout)
    heartbeats = PrefixStore(f"{decision.prefix}/heartbeats", generation.in_thread(client))
    generation.hold(heartbeats)
    return groups, heartbeats


def _entered(
    settled: Membership,
    decision: Decision,
    generation: Generation,
    served: TCPStore | None,
    said: int,
    timeout: timedelta,
) -> NextGeneration:
    """Return the generation once all its members have entered it."""
    groups, heartbeats = entered(decision, generation, decision.members.index(settled.peers.origin), served, timeout)
    nodes = tuple(settled.nodes[settled.generation.members.index(each)] for each in decision.members)
    membership = replace(settled, generation=generation, guard=groups.guard, nodes=nodes, said=said)
    return NextGeneration(decision, groups, membership, heartbeats)
