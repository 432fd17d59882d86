"""Memory for a move: really taken, or refused where machine or container have too little."""

import pytest
import torch
from heterotp_trainer.moving import memory

CPU = torch.device("cpu")


def test_a_reservation_is_memory_that_was_written(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1000)
    buffer = memory.reserve(900, CPU)
    assert buffer.nbytes == 900 and not buffer.any()
    assert memory.reserve(951, CPU) is None  # something stays for others
    monkeypatch.setattr(memory, "available", lambda: None)  # nobody says how much there is
    assert memory.reserve(2000, CPU).nbytes == 2000


def test_a_device_that_is_full_refuses(monkeypatch):
    def full(*shape, **options):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch, "zeros", full)
    assert memory.reserve(10, CPU) is None


@pytest.mark.parametrize(
    ("limit", "used", "machine", "free"),
    [
        ("max", "5", 7, 7),
        ("10", "4", 7, 6),
        ("10", "12", 7, 0),
        ("10", "1", 7, 7),
        (None, None, 7, 7),
        (None, None, None, None),
    ],
)
def test_what_is_left_is_the_least_of_machine_and_container(monkeypatch, tmp_path, limit, used, machine, free):
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_of_machine", lambda: machine)
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{used}\n")
    assert memory.available() == free


def test_this_machine_says_what_it_has():
    assert memory._of_machine() > 1 << 20
