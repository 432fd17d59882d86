"""One rank of the gang behind test_json_messages.py: honest values, then three of a hostile rank 1.

Called as: message_checks.py RANK RANKS FOLDER.
"""

import json
import pickle  # noqa: TID251 (the attack)
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from heterotp_trainer.launch import json_messages
from heterotp_trainer.launch.json_messages import MalformedMessageError, broadcast_json, gather_json


@dataclass(frozen=True)
class Value:
    rank: int
    seconds: tuple[float, ...]


class Evil:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return Path.touch, (self.path,)


def attacked(rank: int, ranks: int, payload: bytes, claimed: int | None = None) -> str:
    """Gather while rank 1 sends `payload`; return this rank's complaint. claimed: the length that it announces."""
    original = json_messages._bytes_of
    if rank == 1 and claimed is not None:
        dist.all_gather([torch.zeros(1, dtype=torch.int64) for _ in range(ranks)], torch.tensor([claimed]))
        return ""
    if rank == 1:
        json_messages._bytes_of = lambda value, kind: torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    try:
        gather_json(Value(rank, ()), Value, ranks, None)
    except MalformedMessageError as refused:
        return str(refused)
    finally:
        json_messages._bytes_of = original
    return ""


def main() -> None:
    rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=120))
    marker = folder / "unpickled"
    gathered = gather_json(Value(rank, (float("inf"),) * (1 + 1000 * rank)), Value, ranks, None)
    result = {
        "gathered": [[each.rank, len(each.seconds), each.seconds[-1] == float("inf")] for each in gathered],
        "broadcast": broadcast_json({"loss": float("inf"), "rank": rank}, dict[str, float], rank, None)["rank"],
        "pickle": attacked(rank, ranks, pickle.dumps(Evil(marker))),
        "other type": attacked(rank, ranks, b'{"rank": "first", "seconds": 1}'),
        "too long": attacked(rank, ranks, b"", 1 << 40),
    }
    (folder / f"rank{rank}.json").write_text(json.dumps({**result, "unpickled": marker.exists()}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
