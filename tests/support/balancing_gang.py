"""Jobs of emulated ranks in which one rank is slow, and the control documents that a user would write for them."""

import json
import sys
from pathlib import Path

from support.launched import spec

SABOTAGE = str(Path(__file__).with_name("ranks") / "sabotage.py")
LONG = 100_000
# slow enough that a busy machine does not blur who is slow
EMULATED = {"type": "emulated", "teraflops": 0.0003, "fixedSeconds": 0.002}
# a rank counts as slow from 2.8 times, by the median of four iterations: other load makes ranks slower as well
SLOW_ONLY = {"enter": 1.8, "exit": 0.9, "window": 4}
CHI4 = {"uid": "slow", "ranks": [2], "slowdown": 4}


def body(ranks=3, device=EMULATED, **training):
    group = {"name": "a", "processesPerPod": ranks, "relativeSpeed": 1, "device": device}
    training.setdefault("model", {"hiddenSize": 72, "depth": 2, "heads": 9, "patchSize": 4})  # divides by three
    return spec(ranks, [group], batchSize=16, **training)


def write_control(folder, generation, strategy="None", injections=(), lease=None, **policy):
    """Write the control document as a user's editor would; lease: seconds, as an operator would."""
    balancing = {"strategy": strategy, **policy}
    document = {"generation": generation, "balancing": balancing, "injections": list(injections)}
    document |= {"leaseSeconds": lease} if lease else {}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "control.json").write_text(json.dumps(document))


def sabotaged(what):
    """Return the command of ranks of which one, or each, does so."""
    return [sys.executable, SABOTAGE, what]
