"""One rank of the gang behind test_storage_gang.py: reads of all ranks, of which the last one's is odd.

Called as: storage_checks.py RANK RANKS FOLDER. Result: by case what this rank got, or which error.
"""

import json
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from heterotp_trainer.checkpoint.storage import done_by_all
from heterotp_trainer.errors import InputError

TIMEOUT_SECONDS, SLOW_SECONDS = 6, 9


def outcome(act, ranks):
    try:
        return done_by_all(act, ranks, None, TIMEOUT_SECONDS)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def raising(error):
    def act():
        raise error

    return act


def main(rank, ranks, folder):
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=TIMEOUT_SECONDS)
    )
    odd, found = rank == ranks - 1, {}
    found["slow"] = outcome(lambda: (time.sleep(SLOW_SECONDS) if odd else None, rank)[1], ranks)  # the fault
    never = threading.Event()  # the others read on
    for name, error in {"input": InputError("no such file"), "other": KeyError("x")}.items():
        found[name] = outcome(raising(error) if odd else never.wait, ranks)
    found["all"] = outcome(raising(InputError("no such file")), ranks)
    never.set()
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
