"""How the ranks of one attempt meet: rendezvous, process groups, and the facts that they exchange."""

import socket
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import zip_longest
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # before there is a group: its default arguments keep the one of that moment
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from heterotp_trainer.devices.device import Device
from heterotp_trainer.errors import OURS, InputError
from heterotp_trainer.launch.door import TurnedAwayError, enter, key_of, prove_to_all
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.launch.facts import Facts, facts_of
from heterotp_trainer.launch.json_messages import gather_json
from heterotp_trainer.launch.regroup import Membership, first_generation, join, make_groups, next_generation
from heterotp_trainer.membership.errors import AloneError, GoneError, LeftOutError
from heterotp_trainer.membership.groups import Generation
from heterotp_trainer.membership.peers import Decision
from heterotp_trainer.membership.survivors import Left

NAME_POLL_SECONDS = 0.2
# where a collective fails: called, waited for, or started by the backward pass
COLLECTIVES = (OURS, *(str(Path(module.__path__[0])) + "/" for module in (torch.distributed, torch.autograd)))


class PeerLostError(RuntimeError):
    """A peer died or hangs: this rank is a victim, not the cause."""


class NotLetInError(PeerLostError):
    """This rank came back and was not let in, or the others went on without it: a further start may help."""


class NameUnresolvedError(PeerLostError):
    """The host name of rank 0's pod did not resolve within the collective timeout."""


@dataclass
class Gang:
    """The process groups of one attempt, each of all ranks, and what the ranks reported at the start.

    control_group (gloo): control documents, checkpoints, agreements. tp_group (nccl or gloo, see backend): the layers'
    collectives, columns and units. exchange_group (gloo): the reports of a boundary, asynchronous. heartbeats: a store
    for what must arrive while a collective hangs. With runPolicy.elastic all groups can be left (membership/groups.py).
    """

    control_group: dist.ProcessGroup
    tp_group: dist.ProcessGroup
    exchange_group: dist.ProcessGroup
    facts: tuple[Facts, ...]
    backend: str
    heartbeats: Store
    membership: Membership | None = None  # with runPolicy.elastic

    @property
    def unlike(self) -> bool:
        """Whether replicated parameters may drift apart, because ranks compute on devices that round differently."""
        return len({fact.arithmetic for fact in self.facts}) > 1

    @property
    def late(self) -> bool:
        """Whether some rank's device runs behind its host, which then reads values one iteration later."""
        return any(fact.torch_device != "cpu" for fact in self.facts)


def meet(environment: RankEnvironment, device: Device, complaint: str) -> Gang:
    """Form the process groups of this attempt and exchange facts, among ranks that have its secret (all ranks).

    Raises InputError with every rank's complaint, or naming a rendezvous port that is taken; an error for which
    `lost_peer` is true when a rank does not arrive within the collective timeout.
    """
    timeout = timedelta(seconds=environment.spec.collective_timeout_seconds)
    key = key_of(environment)
    served = _open_store(environment, timeout)
    try:
        enter(served, key, environment.rank, environment.ranks, timeout.total_seconds())
    except TurnedAwayError as error:
        raise PeerLostError(str(error)) from None
    store = PrefixStore(key.prefix, served)
    generation = first_generation(environment) if environment.spec.run_policy.elastic is not None else None
    if generation is not None:
        return _elastic_gang(environment, generation, store, timeout, device, complaint)
    dist.init_process_group("gloo", store=store, rank=environment.rank, world_size=environment.ranks, timeout=timeout)
    control_group = dist.group.WORLD
    assert control_group is not None
    facts = _facts(environment, device, complaint, control_group)
    backend = "nccl" if all(fact.torch_device == "cuda" for fact in facts) else "gloo"
    tp_group = dist.new_group(backend=backend, timeout=timeout)
    exchange_group = dist.new_group(backend="gloo", timeout=timeout)
    assert isinstance(tp_group, dist.ProcessGroup) and isinstance(exchange_group, dist.ProcessGroup)
    return Gang(control_group, tp_group, exchange_group, facts, backend, _heartbeats(environment, timeout))


def _elastic_gang(
    environment: RankEnvironment,
    generation: Generation,
    store: Store,
    timeout: timedelta,
    device: Device,
    complaint: str,
) -> Gang:
    """Return a gang that may lose ranks (all ranks)."""
    if device.torch_device.type != "cpu":
        complaint = complaint or f"spec.runPolicy.elastic: {device.name}: is not supported: use device type cpu"
    groups = make_groups(generation, store, environment.rank, timeout)
    facts = _facts(environment, device, complaint, groups.control)
    membership = join(environment, generation, groups, timeout)
    heartbeats = _heartbeats(environment, timeout)
    return Gang(groups.control, groups.tp, groups.exchange, facts, "gloo", heartbeats, membership)


def _heartbeats(environment: RankEnvironment, timeout: timedelta) -> Store:
    return PrefixStore(f"{key_of(environment).prefix}/heartbeats", _connect(environment, timeout, serve=False))


def _facts(
    environment: RankEnvironment, device: Device, complaint: str, control_group: dist.ProcessGroup
) -> tuple[Facts, ...]:
    """Return what all ranks report, once each has proved that it belongs here; raises InputError with complaints."""
    key = key_of(environment)
    try:
        prove_to_all(key, environment.rank, environment.ranks, control_group)
    except TurnedAwayError as error:
        raise PeerLostError(str(error)) from None
    facts = _exchange(facts_of(device, complaint), environment.ranks, control_group)
    complaints = [f"rank {rank}: {fact.complaint}" for rank, fact in enumerate(facts) if fact.complaint]
    if complaints:
        raise InputError("; ".join(complaints))
    return facts


def next_gang(
    gang: Gang, environment: RankEnvironment, own: Left, speeds: Sequence[float]
) -> tuple[Gang, RankEnvironment, Decision]:
    """Return the gang without the ranks that were lost, and this rank's place in it (all survivors).

    own: what this rank holds; speeds: of the ranks before. Raises PeerLostError where this rank must not go on.
    """
    settled = gang.membership
    assert settled is not None
    timeout = timedelta(seconds=environment.spec.collective_timeout_seconds)
    try:
        found = next_generation(settled, own, speeds, timeout)
    except LeftOutError as error:
        raise NotLetInError(str(error)) from None
    except AloneError as error:
        raise PeerLostError(str(error)) from None
    members, groups = found.decision.members, found.groups
    facts = tuple(gang.facts[settled.generation.members.index(each)] for each in members)
    place = replace(environment, rank=members.index(settled.peers.origin), ranks=len(members), members=members)
    made = Gang(groups.control, groups.tp, groups.exchange, facts, gang.backend, found.heartbeats, found.membership)
    return made, place, found.decision


def _open_store(environment: RankEnvironment, timeout: timedelta) -> TCPStore:
    """Return the store that rank 0 serves; wait for a host name that does not resolve yet."""
    address, port = environment.master_address, environment.master_port
    if environment.rank != 0:
        _wait_for_name(address, timeout.total_seconds())
    try:
        return _connect(environment, timeout, serve=environment.rank == 0)
    except RuntimeError as error:
        cause = str(error).partition("\n")[0]
        if environment.rank == 0:
            raise InputError(f"spec.rendezvous.port: {port}: rank 0 cannot listen on it: {cause}") from error
        limit = timeout.total_seconds()
        raise PeerLostError(f"rank 0 is not at {address}:{port}, waited up to {limit:.0f} s: {cause}") from error


def _connect(environment: RankEnvironment, timeout: timedelta, *, serve: bool) -> TCPStore:
    """Return a client of rank 0's store, which this rank serves if asked; a connection serves one thread."""
    return TCPStore(
        "localhost" if environment.rank == 0 else environment.master_address,
        environment.master_port,
        environment.ranks,
        is_master=serve,
        timeout=timeout,
        wait_for_workers=False,
        use_libuv=False,  # Debian's torch is built without it
    )


def _wait_for_name(address: str, seconds: float) -> None:
    """Wait until a host name resolves; raise NameUnresolvedError when it does not in time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.getaddrinfo(address, None)
            return
        except socket.gaierror:
            if time.monotonic() > deadline:
                raise NameUnresolvedError(f"{address} does not resolve; is rank 0's pod running?") from None
            time.sleep(NAME_POLL_SECONDS)


def _exchange(facts: Facts, ranks: int, group: dist.ProcessGroup) -> tuple[Facts, ...]:
    return tuple(gather_json(facts, Facts, ranks, group))


def lost_peer(error: BaseException) -> bool:
    """Return whether an error was raised because a peer is gone or hangs."""
    if isinstance(
        error, (PeerLostError, GoneError, AloneError, dist.DistError)
    ):  # DistError: also of a store that waited in vain
        return True
    return isinstance(error, RuntimeError) and _is_of_a_backend(error)


def _is_of_a_backend(error: RuntimeError) -> bool:
    """Return whether gloo or nccl raised an error.

    The one place that searches an error's text: gloo's failures reach Python as plain RuntimeErrors that carry no code.
    These are texts of the libraries, never sentences of this project. Errors of user code, and of other parts of torch
    (a DataLoader that timed out), may have the same words, so the place counts, too.
    """
    if not _file_of(error).startswith(COLLECTIVES):
        return False
    text = str(error).lower()
    signs = ("gloo", "connection closed by peer", "connection reset by peer", "timed out", "nccl", "broken pipe")
    return any(sign in text for sign in signs)


def _file_of(error: BaseException) -> str:
    """Return the file of the innermost frame of an error; empty where it was never raised."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames[-1].f_code.co_filename if frames else ""


def agree(gang: Gang, what: str, value: str | Sequence[str]) -> None:
    """Raise InputError naming the ranks whose value differs from rank 0's (all ranks).

    Of a sequence, the first item that differs is told, too.
    """
    own = [value] if isinstance(value, str) else list(value)
    values = gather_json(own, list[str], len(gang.facts), gang.control_group)
    odd = [rank for rank, other in enumerate(values) if other != values[0]]
    if odd:
        first = "" if isinstance(value, str) else _first_difference(odd[0], values[odd[0]], values[0])
        raise InputError(f"{what} of ranks {odd} differs from rank 0's{first}; every rank must see the same")


def _first_difference(rank: int, items: Sequence[str], of_rank_0: Sequence[str]) -> str:
    """Return which item of a rank differs first from rank 0's, in brackets."""
    pairs = zip_longest(items, of_rank_0, fillvalue="nothing more")
    other, own = next((other, own) for other, own in pairs if other != own)
    return f" (rank {rank} has {other}, rank 0 has {own})"


def leave(gang: Gang) -> None:
    """Wait for all ranks and dissolve the groups, which the gang then has no more (all ranks).

    A group's threads end with the last reference to it, so that the caller gives up its own, too: a thread that still
    holds a tensor while Python ends would abort the process.
    """
    dist.barrier(group=gang.control_group)
    if gang.membership is not None:
        gang.membership.peers.close()
        gang.membership.generation.leave()
    else:
        dist.destroy_process_group()
    del gang.control_group, gang.tp_group, gang.exchange_group
