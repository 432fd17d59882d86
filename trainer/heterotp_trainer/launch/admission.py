"""How a gang lets in a rank that knocked: as the next generation, which all enter together, or nobody.

| step   | rank 0                                   | other ranks             | the newcomer                       |
|--------|------------------------------------------|-------------------------|------------------------------------|
| invite | sends a token over the door's connection | hear who it is          | hears the token and who will come  |
| reach  | connects to the newcomer                 | the same                | takes a connection from each       |
| enter  | decides, opens a store                   | hear the decision       | hears it over the door's connection|
| prove  | all prove over the new groups that they have the secret of the run                           |||

A newcomer that fails before all have entered is forgotten; a rank that is lost meanwhile is lost as at any other time.
"""

import secrets
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path

from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]

from heterotp_trainer.devices.device import Device
from heterotp_trainer.launch.door import TurnedAwayError, key_of, prove_to_all
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.launch.facts import Facts, facts_of
from heterotp_trainer.launch.json_messages import broadcast_json, gather_json
from heterotp_trainer.launch.knock import (
    SECONDS,
    ClosedError,
    Door,
    Newcomer,
    knock,
    receive_line,
    send_line,
    where_to_knock,
)
from heterotp_trainer.launch.regroup import Groups, Membership, entered, host_of, make_groups
from heterotp_trainer.launch.rendezvous import Gang, NotLetInError, PeerLostError
from heterotp_trainer.membership.errors import AloneError, GoneError
from heterotp_trainer.membership.groups import Generation
from heterotp_trainer.membership.meeting import Lease, Meeting, open_store
from heterotp_trainer.membership.peers import Decision, Peers, listen, reach, taken_from

DOOR_SECONDS = 20.0  # beyond the silence after which a rank is lost, for which a newcomer looks for a door
ENTRY_SECONDS = 30.0  # from the invitation to the decision


@dataclass(frozen=True)
class Invitation:
    """Whom the ranks let in, with which token they show that they belong to the gang, and who they are (origins)."""

    newcomer: Newcomer
    token: str
    members: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """What the newcomer hears of its invitation."""

    token: str
    members: tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """The generation with the newcomer; nodes, facts: of its members, by rank. source: who gives the state."""

    decision: Decision
    nodes: tuple[str, ...]
    facts: tuple[Facts, ...]
    newcomer: int
    source: int


def alone(environment: RankEnvironment, device: Device, complaint: str) -> tuple[Gang, RankEnvironment]:
    """Return a gang of this rank alone, which reads and writes nothing: in it a rank prepares to come back."""
    timeout = timedelta(seconds=environment.spec.collective_timeout_seconds)
    generation = Generation(-1, (environment.rank,))
    groups = make_groups(generation, HashStore(), 0, timeout)
    place = replace(
        environment,
        rank=0,
        ranks=1,
        members=(environment.rank,),
        status_port=None,
        control_dir=None,
        checkpoint_dir=None,
        workdir=None,
        last_words=None,
    )
    facts = (facts_of(device, complaint),)
    return Gang(groups.control, groups.tp, groups.exchange, facts, "gloo", HashStore()), place


# -- the ranks that let one in --------------------------------------------------------------------------------


def let_in(gang: Gang, environment: RankEnvironment, door: Door | None) -> tuple[Gang, RankEnvironment, Entry] | None:
    """Enter the next generation with the newcomer that waits at rank 0's door (all ranks); None: there is none.

    Raises GoneError where a rank is lost meanwhile, or the newcomer after the others had reached it.
    """
    settled, timeout = gang.membership, timedelta(seconds=environment.spec.collective_timeout_seconds)
    assert settled is not None
    members, origin = settled.generation.members, settled.peers.origin
    invitation, door_connection = _invitation(door, members)
    invitation = broadcast_json(invitation, Invitation | None, environment.rank, gang.control_group)
    if invitation is None:
        return None
    connection = _reached(invitation, origin)
    if not all(gather_json(connection is not None, bool, len(members), gang.control_group)):
        for each in (connection, door_connection):
            if each is not None:
                each.close()
        return None
    assert connection is not None
    entry, store = _entry(gang, settled, invitation, timeout) if environment.rank == 0 else (None, None)
    entry = broadcast_json(entry, Entry, environment.rank, gang.control_group)
    if door_connection is not None:
        with suppress(OSError):  # it is lost: seen by everybody's connection to it
            send_line(door_connection, asdict(entry))
        door_connection.close()
    settled.peers.admit(invitation.newcomer.origin, connection)
    return (*_enter(entry, settled, settled.peers, environment, store, timeout, settled.meeting), entry)


def _invitation(door: Door | None, members: tuple[int, ...]) -> tuple[Invitation | None, socket.socket | None]:
    """Return on rank 0 whom to let in, with the connection to it, over which it hears of it."""
    while door is not None and (found := door.next()) is not None:
        newcomer, connection = found
        token = secrets.token_hex(16)
        with suppress(OSError):
            send_line(connection, asdict(Call(token, members)))
            return Invitation(newcomer, token, members), connection
        connection.close()
    return None, None


def _reached(invitation: Invitation, origin: int) -> socket.socket | None:
    newcomer = invitation.newcomer
    try:
        return reach(newcomer.host, newcomer.port, invitation.token, origin, SECONDS)
    except OSError:
        return None


def _entry(gang: Gang, settled: Membership, invitation: Invitation, timeout: timedelta) -> tuple[Entry, TCPStore]:
    before, newcomer = settled.generation.members, invitation.newcomer
    members = tuple(sorted((*before, newcomer.origin)))
    host, place = settled.peers.host, members.index(newcomer.origin)
    store = open_store(host, 0, len(members), timeout, serve=True)
    decision = Decision(settled.generation.number + 1, members, host, store.port, secrets.token_hex(16), ())
    return Entry(
        decision,
        (*settled.nodes[:place], newcomer.node, *settled.nodes[place:]),
        (*gang.facts[:place], newcomer.facts, *gang.facts[place:]),
        place,
        members.index(before[0]),
    ), store


def _enter(
    entry: Entry,
    settled: Membership | None,
    peers: Peers,
    environment: RankEnvironment,
    store: TCPStore | None,
    timeout: timedelta,
    meeting: Meeting,
) -> tuple[Gang, RankEnvironment]:
    """Return the gang with the newcomer, and this rank's place in it (all its ranks)."""
    decision = entry.decision
    generation = Generation(decision.generation, decision.members)
    rank = decision.members.index(peers.origin)
    peers.follow(generation, peers.counts)
    try:
        groups, heartbeats = entered(decision, generation, rank, store, timeout)
        _prove(environment, generation, groups, rank)
    except GoneError:
        generation.leave()
        raise
    membership = Membership(
        generation, peers, meeting, groups.guard, entry.nodes, settled.said if settled is not None else 0
    )
    place = replace(environment, rank=rank, ranks=len(decision.members), members=decision.members)
    return Gang(groups.control, groups.tp, groups.exchange, entry.facts, "gloo", heartbeats, membership), place


def _prove(environment: RankEnvironment, generation: Generation, groups: Groups, rank: int) -> None:
    try:
        prove_to_all(key_of(environment), rank, len(generation.members), groups.control)
    except TurnedAwayError as error:
        generation.give_up(str(error))
        raise GoneError(str(error)) from None


# -- the newcomer ---------------------------------------------------------------------------------------------


def come_in(environment: RankEnvironment, facts: Facts) -> tuple[Gang, RankEnvironment, Entry]:
    """Knock until the gang lets this rank in; return it and this rank's place in it.

    environment: as the launcher gave it. Raises PeerLostError where there is no gang any more, NotLetInError where a
    further start of this rank may help.
    """
    elastic, folder = environment.spec.run_policy.elastic, environment.workdir
    assert elastic is not None
    if folder is None or not environment.secret:
        raise PeerLostError("a rank can come back only where the run has a directory and a secret")
    timeout = timedelta(seconds=environment.spec.collective_timeout_seconds)
    host = host_of(environment)
    with listen(host) as listener:
        own = Newcomer(environment.rank, host, listener.getsockname()[1], socket.gethostname(), facts)
        try:
            call, connection = _called(environment, folder, own, elastic.silent_seconds + DOOR_SECONDS)
            with connection:
                sockets = taken_from(listener, call.token, call.members)
                entry: Entry = receive_line(connection, Entry, ENTRY_SECONDS)
        except ClosedError as error:
            raise PeerLostError(str(error)) from None
        except (AloneError, OSError, ValueError) as error:
            raise NotLetInError(f"the others did not let rank {environment.rank} in: {error}") from None
    peers = Peers(environment.rank, host, sockets, elastic.silent_seconds)
    meeting = Meeting(peers, Lease(folder, environment.attempt), elastic.min_ranks, timeout)
    if environment.rank not in entry.decision.members:
        raise NotLetInError("the others decided on a generation without this rank")
    return (*_enter(entry, None, peers, environment, None, timeout, meeting), entry)


def _called(environment: RankEnvironment, folder: Path, own: Newcomer, seconds: float) -> tuple[Call, socket.socket]:
    """Return the invitation and the connection that it came over; knock again wherever another rank opens a door."""
    key = key_of(environment)
    while True:
        place, connection = knock(key, folder, environment.attempt, own, seconds)
        try:
            while where_to_knock(folder, environment.attempt) == place:
                if select.select([connection], [], [], 1.0)[0]:
                    return receive_line(connection, Call, SECONDS), connection
        except (OSError, ValueError):
            pass
        connection.close()


def speeds_of(known: Sequence[float], members: Sequence[int]) -> dict[int, float]:
    """Return the speeds of ranks by origin; known: by rank, empty: all alike."""
    return dict(zip(members, known or [1.0] * len(members), strict=True))
