"""Ranks that prove to each other that they have a secret; rank 1 has another: `door_checks.py RANK RANKS FOLDER`."""

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from heterotp_trainer.launch.door import Key, TurnedAwayError, prove_to_all

RANK, RANKS, FOLDER = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])

store = dist.FileStore(str(FOLDER / "store"), RANKS)
dist.init_process_group("gloo", store=store, rank=RANK, world_size=RANKS, timeout=timedelta(seconds=60))
group = dist.group.WORLD
found = {}
for case, secret in (("same", "a" * 16), ("other", ("b" if RANK == 1 else "a") * 16), ("none", "")):
    try:
        prove_to_all(Key(secret, "job", 1), RANK, RANKS, group)
        found[case] = ""
    except TurnedAwayError as error:
        found[case] = str(error)
(FOLDER / f"rank{RANK}.json").write_text(json.dumps(found))
dist.barrier()
dist.destroy_process_group()
