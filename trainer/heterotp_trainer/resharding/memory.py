"""Memory that a move of units needs, reserved before the move so that the move cannot fail half-way."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

SPARE = 0.05  # share of the available memory that is left to other processes
PIECE_BYTES = 64 << 20  # reserved at once: ranks of one machine reserve at the same time and must see each other
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Need:
    """Bytes that a move needs: `lasting` stay in use after it, `passing` are in use during it only."""

    lasting: int
    passing: int


@dataclass(frozen=True)
class Room:
    """Bytes of a device: what this process may use in all, uses now, and has used at most."""

    capacity: int
    now: int
    peak: int


def reserve(need: Need, device: torch.device) -> list[Tensor] | None:
    """Return buffers of the needed bytes, backed by real memory, or None where there is not enough.

    A move runs between iterations, when the memory of activations is free. On CUDA no other process takes that memory,
    so that only the lasting part is reserved.
    """
    if device.type != "cuda":
        return _taken(need.lasting + need.passing, device)
    return _taken(need.lasting, device) if fits(need, _room(device)) else None


def fits(need: Need, room: Room) -> bool:
    """Return whether the move fits, and the lasting part fits beside the largest iteration so far."""
    least = max(room.peak, room.now + need.passing)
    return least + need.lasting <= room.capacity * (1 - SPARE)


def _room(device: torch.device) -> Room:
    free, _ = torch.cuda.mem_get_info(device)
    mine = free + torch.cuda.memory_reserved(device)
    return Room(mine, torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device))


def _taken(nbytes: int, device: torch.device) -> list[Tensor] | None:
    """Return buffers that were written, because the host maps pages only on a write; None: not enough memory."""
    known = available() if device.type == "cpu" else None
    spare, buffers = SPARE * (known or 0), list[Tensor]()
    for start in range(0, nbytes, PIECE_BYTES):
        size = min(PIECE_BYTES, nbytes - start)
        free = available() if device.type == "cpu" else None
        if free is not None and size > free - spare:
            return None
        try:
            buffers.append(torch.zeros(size, dtype=torch.uint8, device=device))
        except RuntimeError:  # of which torch.OutOfMemoryError is one
            return None
    return buffers


def available() -> int | None:
    """Return the bytes that this process may still allocate, in its machine and container; None: unknown."""
    known = [free for free in (_of_machine(), _of_container()) if free is not None]
    return min(known, default=None)


def _of_machine() -> int | None:
    kilobytes = _number(Path("/proc/meminfo"), "MemAvailable:")
    return kilobytes * 1024 if kilobytes is not None else None


def _of_container() -> int | None:
    """Return what is left of a container's limit; cached files that the kernel can drop do not count as used."""
    try:
        limit, used = ((CGROUP / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    cached = _number(CGROUP / "memory.stat", "inactive_file") or 0
    return None if limit == "max" else max(0, int(limit) - int(used) + cached)


def _number(path: Path, name: str) -> int | None:
    """Return the number that follows a name in a file of `name number` lines; None where it is missing."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(words[1]) for words in map(str.split, lines) if words and words[0] == name), None)
