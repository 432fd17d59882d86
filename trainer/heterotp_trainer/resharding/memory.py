"""Memory that a move will need, taken beforehand so that it cannot fail half-way."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

SPARE = 0.05  # of what is available stays so: other processes breathe
PIECE_BYTES = 64 << 20  # taken at once: ranks of one machine take at the same moment, and must see each other do so
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Need:
    """Bytes that a move needs: what a rank holds more from then on, and what the move itself takes for a moment."""

    lasting: int
    passing: int


@dataclass(frozen=True)
class Room:
    """Bytes of a device that this process may use in all, uses now, and has used at most."""

    capacity: int
    now: int
    peak: int


def reserve(need: Need, device: torch.device) -> list[Tensor] | None:
    """Return buffers of so many bytes, really taken, or None where there is not enough memory.

    A move runs between iterations, when activations are free: on CUDA, where they are not shared with others, only what
    lasts is taken meanwhile.
    """
    if device.type != "cuda":
        return _taken(need.lasting + need.passing, device)
    return _taken(need.lasting, device) if fits(need, _room(device)) else None


def fits(need: Need, room: Room) -> bool:
    """Return whether there is room for a move, and beside the largest iteration so far for what lasts."""
    least = max(room.peak, room.now + need.passing)
    return least + need.lasting <= room.capacity * (1 - SPARE)


def _room(device: torch.device) -> Room:
    free, _ = torch.cuda.mem_get_info(device)
    mine = free + torch.cuda.memory_reserved(device)
    return Room(mine, torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device))


def _taken(nbytes: int, device: torch.device) -> list[Tensor] | None:
    """Return buffers that were written: the host gives pages only then."""
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
    """Return the bytes that this process may still take: of the machine, and of its container; None: nobody says."""
    known = [free for free in (_of_machine(), _of_container()) if free is not None]
    return min(known, default=None)


def _of_machine() -> int | None:
    kilobytes = _number(Path("/proc/meminfo"), "MemAvailable:")
    return kilobytes * 1024 if kilobytes is not None else None


def _of_container() -> int | None:
    """Return what is left of a container's limit; files that the kernel would drop are not in use."""
    try:
        limit, used = ((CGROUP / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    cached = _number(CGROUP / "memory.stat", "inactive_file") or 0
    return None if limit == "max" else max(0, int(limit) - int(used) + cached)


def _number(path: Path, name: str) -> int | None:
    """Return the number behind a name in a file of such lines, None where there is none."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(words[1]) for words in map(str.split, lines) if words and words[0] == name), None)
