"""The control channel: a document is announced once, received by all ranks, then in force with a renewed lease."""

import json

import pytest
from heterotp_trainer.boundary import control_channel
from heterotp_trainer.boundary.control_channel import ControlChannel
from heterotp_trainer.boundary.lease import Lease

RANKS = 2


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Wire:
    """Replaces the gloo group: the first broadcast of a document is the source's, later ones receive it."""

    def __init__(self):
        self.sent = []
        self.data = None

    def broadcast(self, buffer, src, group):
        assert (src, group) == (0, self)
        if self.data is None:
            self.data = buffer.clone()
            self.sent.append(len(buffer))
        else:
            assert len(buffer) == len(self.data)
            buffer.copy_(self.data)


@pytest.fixture
def wire(monkeypatch):
    made = Wire()
    monkeypatch.setattr(control_channel.dist, "broadcast", made.broadcast)
    return made


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def channels(tmp_path, wire, clock):
    """The channels of rank 0 and rank 1."""
    made = [ControlChannel(tmp_path, RANKS, wire), ControlChannel(None, RANKS, wire)]
    for each in made:
        each.lease = Lease(now=clock)
    return made


def write(channel, generation, **more):
    """Write a document to rank 0's file, which then reads it as its thread does."""
    path = channel._file._path
    path.write_text(json.dumps({"schemaVersion": 1, "generation": generation, **more}))
    channel._file.check()


def exchange(channels, wire):
    """Announce and receive as two boundaries do; return the announcement."""
    generation, length = channels[0].announcement()
    if length:
        wire.data = None
        for channel in channels:
            channel.receive(length)
    return generation, length


def test_before_the_first_document_nothing_is_announced(channels):
    assert [channel.announcement() for channel in channels] == [(0, 0), (0, 0)]
    assert [channel.generation for channel in channels] == [0, 0]
    assert [channel.newest_generation for channel in channels] == [0, 0]
    assert [channel.error for channel in channels] == [None, None]


def test_a_document_is_in_force_on_all_ranks_once_received(channels, wire):
    write(channels[0], 3, balancing={"strategy": "ZERO"}, injections=[{"uid": "a", "ranks": [1], "slowdown": 2}])
    generation, length = channels[0].announcement()
    assert generation == 3 and length > 0
    assert [channel.generation for channel in channels] == [0, 0]  # announced, not in force yet
    received = [channel.receive(length) for channel in channels]
    assert received[0] == received[1] == channels[0]._file.document
    assert [channel.document for channel in channels] == received
    assert [channel.generation for channel in channels] == [3, 3]
    assert wire.sent == [length]


def test_a_document_is_announced_once(channels, wire):
    write(channels[0], 3)
    assert channels[0].announcement()[1] > 0
    assert channels[0].announcement() == (3, 0)  # until all ranks have received it
    wire.data = None
    channels[0].receive(1)
    assert channels[0].announcement() == (3, 0)  # in force
    assert wire.sent[0] > 1  # the length that rank 0 sends is the document's


def test_a_document_that_follows_an_announced_one_is_announced_after_it(channels, wire):
    write(channels[0], 3)
    first = channels[0].announcement()[1]
    write(channels[0], 4, balancing={"strategy": "ZERO"})
    assert channels[0].announcement() == (4, 0)
    for channel in channels:
        channel.receive(first)
    assert [channel.generation for channel in channels] == [3, 3]
    assert channels[0].newest_generation == 4
    generation, length = exchange(channels, wire)
    assert generation == 4 and length != first
    assert [channel.generation for channel in channels] == [4, 4]
    assert [channel.document.balancing.strategy for channel in channels] == ["ZERO", "ZERO"]


def test_a_change_without_a_new_generation_is_announced(channels, wire):
    write(channels[0], 3)
    exchange(channels, wire)
    write(channels[0], 3, balancing={"strategy": "ZERO"})
    assert exchange(channels, wire)[1] > 0
    assert channels[1].document.balancing.strategy == "ZERO"


def test_a_refused_file_is_reported_and_announces_nothing(channels, wire):
    write(channels[0], 3)
    exchange(channels, wire)
    write(channels[0], 4, balancing={"strategy": "MIG", "mig": {"fixedRatio": 0.5, "ranks": [RANKS]}})
    assert channels[0].announcement() == (3, 0)
    assert (channels[0].error.reason, channels[0].error.generation) == ("invalid", 4)
    assert channels[1].error is None


def test_a_lease_is_over_when_its_seconds_have_passed(channels, wire, clock):
    write(channels[0], 3, leaseSeconds=10)
    exchange(channels, wire)
    clock.now += 10
    assert [channel.lease_is_over() for channel in channels] == [False, False]
    clock.now += 0.5
    assert [channel.lease_is_over() for channel in channels] == [True, True]


def test_a_received_document_renews_the_lease(channels, wire, clock):
    write(channels[0], 3, leaseSeconds=10)
    clock.now += 1000  # the first document comes late
    exchange(channels, wire)
    assert [channel.lease_is_over() for channel in channels] == [False, False]
    clock.now += 1000
    assert [channel.lease_is_over() for channel in channels] == [True, True]
    write(channels[0], 4, leaseSeconds=10)
    exchange(channels, wire)
    assert [channel.lease_is_over() for channel in channels] == [False, False]


def test_without_lease_seconds_no_lease_ends(channels, wire, clock):
    clock.now += 1000
    assert not channels[0].lease_is_over()
    write(channels[0], 3)
    exchange(channels, wire)
    clock.now += 1000
    assert not channels[0].lease_is_over()


def test_start_reads_the_file_and_stop_ends_the_thread(channels, tmp_path):
    (tmp_path / "control.json").write_text(json.dumps({"generation": 5}))
    for channel in channels:
        channel.start()
        channel.stop()
    assert channels[0].newest_generation == 5
    assert channels[1].newest_generation == 0
