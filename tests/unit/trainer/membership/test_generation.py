"""Waits that are given up, and the agreement of survivors over real connections."""

import socket
import threading
from datetime import timedelta

import pytest
from heterotp_trainer.membership.errors import AloneError, GoneError
from heterotp_trainer.membership.groups import Generation
from heterotp_trainer.membership.meeting import Lease, Meeting
from heterotp_trainer.membership.peers import Address, Peers, connect, listen
from heterotp_trainer.membership.survivors import Left
from support.patience import PATIENCE_SECONDS

TIMEOUT = timedelta(seconds=PATIENCE_SECONDS)


def test_a_wait_ends_when_the_generation_is_given_up():
    generation, begun = Generation(0, (0, 1)), threading.Event()
    never = threading.Event()

    def act():
        begun.set()
        never.wait()

    def give_up():
        begun.wait()
        generation.give_up("rank 1 closed its connection")

    threading.Thread(target=give_up).start()
    with pytest.raises(GoneError, match="rank 1 closed"):
        generation.in_thread(act)
    never.set()
    with pytest.raises(GoneError):
        generation.check()


def test_what_a_thread_returns_or_raises_arrives():
    generation = Generation(0, (0,))
    assert generation.in_thread(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        generation.in_thread(lambda: 1 / 0)


def connected(ranks, silent_seconds=PATIENCE_SECONDS):
    """Return the peers of a gang in one process."""
    listeners = [listen("127.0.0.1") for _ in range(ranks)]
    addresses = [Address("127.0.0.1", each.getsockname()[1], "token", "node") for each in listeners]
    found = {}
    threads = [
        threading.Thread(target=lambda r=rank: found.update({r: connect(r, listeners[r], addresses)}))
        for rank in range(ranks)
    ]
    for each in threads:
        each.start()
    for each in [*threads]:
        each.join()
    for each in listeners:
        each.close()
    return [Peers(rank, "127.0.0.1", found[rank], silent_seconds) for rank in range(ranks)]


def killed(peers):
    """Close a rank's connections as the kernel does when its process is killed."""
    peers._over.set()
    peers._thread.join()
    for each in peers._sockets.values():
        each.close()


def agreed(gang, members, least=1, lease=None):
    """Return what each of these members gets from the agreement: a decision, or its error."""
    found = {}

    def run(rank):
        peers = gang[rank]
        meeting = Meeting(peers, lease or Lease(None, 0), least, TIMEOUT)
        try:
            found[rank] = meeting.agree(Left(rank, 1, 0, applied=3), tuple(range(len(gang))), ())[0]
        except AloneError as error:
            found[rank] = str(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in members]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


def test_the_loss_of_any_rank_is_seen_and_agreed_on():
    for lost in range(3):
        gang = connected(3)
        generations = [Generation(0, (0, 1, 2)) for _ in gang]
        for peers, generation in zip(gang, generations, strict=True):
            peers.follow(generation, {})
        killed(gang[lost])
        members = [rank for rank in range(3) if rank != lost]
        found = agreed(gang, members)
        assert {each.members for each in found.values()} == {tuple(members)}
        assert {each.generation for each in found.values()} == {1}
        assert [left.rank for left in found[members[0]].lefts] == members
        for rank in members:
            assert f"rank {lost}" in generations[rank].why
            gang[rank].close()


def test_half_of_a_gang_goes_on_with_the_lease_only(tmp_path):
    gang = connected(4)
    for rank in (1, 3):
        killed(gang[rank])
    found = agreed(gang, (0, 2), lease=Lease(tmp_path, 1))
    assert {each.members for each in found.values()} == {(0, 2)}
    assert not Lease(tmp_path, 1).taken(0, 1)
    assert Lease(tmp_path, 1).taken(0, 0)
    for rank in (0, 2):
        gang[rank].close()


def test_a_rank_without_the_others_does_not_go_on():
    gang = connected(3)
    for rank in (1, 2):
        killed(gang[rank])
    assert "no majority" in agreed(gang, (0,))[0]
    gang[0].close()


def test_fewer_ranks_than_asked_for_do_not_go_on():
    gang = connected(3)
    killed(gang[1])
    found = agreed(gang, (0, 2), least=3)
    assert all("spec.runPolicy.elastic.minRanks is 3" in each for each in found.values())
    for rank in (0, 2):
        gang[rank].close()


def test_a_rank_that_ends_well_is_not_lost():
    gang, generation = connected(2), Generation(0, (0, 1))
    gang[0].follow(generation, {})
    gang[1].close()
    assert gang[0].wait(lambda: 1 in gang[0].dead, PATIENCE_SECONDS)
    assert not generation.why
    gang[0].close()


def test_a_silent_rank_counts_as_lost():
    ours, theirs = socket.socketpair()
    peers, generation = Peers(0, "127.0.0.1", {1: ours}, 0.2), Generation(0, (0, 1))
    peers.follow(generation, {})
    with pytest.raises(GoneError, match="was silent"):
        generation.until(lambda over: None, lambda: False)
    theirs.close()
    peers.close()


def test_a_stranger_is_turned_away():
    listener = listen("127.0.0.1")
    port = listener.getsockname()[1]
    addresses = [Address("127.0.0.1", port, "token", "a"), Address("127.0.0.1", 1, "", "b")]
    stranger = socket.create_connection(("127.0.0.1", port))
    stranger.sendall(b'["guess", 1]\n')
    rank_1 = socket.create_connection(("127.0.0.1", port))
    rank_1.sendall(b'["token", 1]\n')
    found = connect(0, listener, addresses)
    assert found[1].getpeername() == rank_1.getsockname()
    for each in (listener, stranger, rank_1, *found.values()):
        each.close()
