"""Memory for a move: really taken, or refused where machine or container have too little."""

import pytest
import torch
from heterotp_trainer.resharding import memory
from heterotp_trainer.resharding.memory import Need

CPU = torch.device("cpu")


def sizes(buffers):
    return [each.nbytes for each in buffers]


def test_a_reservation_is_memory_that_was_written(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1000)
    (buffer,) = memory.reserve(Need(500, 400), CPU)
    assert buffer.nbytes == 900 and not buffer.any()
    assert memory.reserve(Need(900, 51), CPU) is None  # something stays for others
    monkeypatch.setattr(memory, "available", lambda: None)  # the amount of memory is unknown
    assert sizes(memory.reserve(Need(0, 2000), CPU)) == [2000]


def test_concurrent_reservations_are_seen(monkeypatch):
    left = iter([1000, 1000, 700, 300, 20])  # at first, and before each piece: another rank takes as much
    monkeypatch.setattr(memory, "PIECE_BYTES", 100)
    monkeypatch.setattr(memory, "available", lambda: next(left))
    assert memory.reserve(Need(400, 0), CPU) is None
    left = iter([1000, 1000, 900, 800])
    assert sizes(memory.reserve(Need(250, 0), CPU)) == [100, 100, 50]


@pytest.mark.parametrize(
    ("lasting", "passing", "fits"),
    [(195, 300, True), (196, 300, False), (100, 550, True), (100, 551, False), (0, 0, True)],
)
def test_a_device_needs_room_for_the_move_and_for_the_largest_iteration_after_it(lasting, passing, fits):
    room = memory.Room(capacity=1000, now=300, peak=755)
    assert memory.fits(Need(lasting, passing), room) == fits


def test_a_device_that_is_full_refuses(monkeypatch):
    def full(*shape, **options):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch, "zeros", full)
    assert memory.reserve(Need(10, 0), CPU) is None


@pytest.mark.parametrize(
    ("limit", "used", "cached", "machine", "free"),
    [
        ("max", "5", "0", 7, 7),
        ("10", "4", "0", 7, 6),
        ("10", "9", "5", 7, 6),
        ("10", "12", "0", 7, 0),
        ("10", "1", "0", 7, 7),
        (None, None, None, 7, 7),
        (None, None, None, None, None),
    ],
)
def test_free_memory_is_the_minimum_of_machine_and_container(monkeypatch, tmp_path, limit, used, cached, machine, free):
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_of_machine", lambda: machine)
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{used}\n")
        (tmp_path / "memory.stat").write_text(f"anon 3\ninactive_file {cached}\nactive_file 2\n")
    assert memory.available() == free


def test_available_memory_of_this_machine_is_known():
    assert memory._of_machine() > 1 << 20
