"""One cell of the accuracy study by a gang of real ranks on emulated devices, as `heterotp run` runs any job."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from heterotp_api.names import API_VERSION, CONTAINER, EXIT_STOPPED
from heterotp_api.training import ModelShape

from heterotp_cli.bench.emulation import FFN_RATIO
from heterotp_cli.bench.study_cells import StudyCell, StudySize
from heterotp_cli.errors import Failed
from heterotp_cli.workdir import read_json

CELL = "HETEROTP_STUDY_CELL"  # environment of the ranks: cell and size, JSON
RESULT = "result.json"
MODULE = "heterotp_cli.bench.rank_study"
LINK = {"linkBytesPerSecond": 1e9, "linkLatencySeconds": 1e-5}


def size_from(found: dict[str, Any]) -> tuple[StudyCell, StudySize]:
    """Return cell and size from JSON."""
    size = {**found["size"], "shape": ModelShape(**found["size"]["shape"])}
    cell = {**found["cell"], "chis": tuple(found["cell"]["chis"])}
    return StudyCell(**cell), StudySize(**size)


def manifest(cell: StudyCell, size: StudySize) -> list[dict[str, Any]]:
    """Return the job, and what makes its ranks slow."""
    name = cell.file.lower().replace("_", "-")
    value = json.dumps({"cell": {**asdict(cell), "shares": ()}, "size": asdict(size)})
    environment = [{"name": CELL, "value": value}]
    container = {"name": CONTAINER, "image": "none", "command": ["python3", "-m", MODULE], "env": environment}
    group = {
        "name": "ranks",
        "processesPerPod": size.ranks,
        "device": device(size),
        "template": {"spec": {"containers": [container]}},
    }
    spec = {
        "tensorParallelDegree": size.ranks,
        "workerGroups": [group],
        "balancing": {"policy": cell.policy},
        "checkpoint": {"everySeconds": 120},
    }
    kinds: list[dict[str, Any]] = [{"kind": "HeteroTPJob", "metadata": {"name": name}, "spec": spec}]
    for rank, chi in enumerate(cell.chis):
        if chi > 1:
            slow = {"jobRef": {"name": name}, "targets": {"ranks": [rank]}, "slowdown": chi}
            kinds.append({"kind": "StragglerInjection", "metadata": {"name": f"slow-{rank}"}, "spec": slow})
    return [{"apiVersion": API_VERSION, **each} for each in kinds]


def device(size: StudySize) -> dict[str, Any]:
    """Return the emulated device on which the products of an iteration take the size's seconds."""
    shape = size.shape
    side = 8 if size.data in ("digits", "synthetic") else 32
    tokens = (side // shape.patch_size) ** 2 + 1
    operations = 6 * size.batch_size * tokens * (4 + 2 * FFN_RATIO) * shape.hidden_size**2 * shape.depth / size.ranks
    return {"type": "emulated", "teraflops": operations / size.gang_seconds / 1e12, **LINK}


def train_gang(cell: StudyCell, size: StudySize, workdir: Path, *, compare: bool) -> dict[str, Any]:
    """Train a cell by real ranks to its end, from where it was stopped; return its result.

    compare: also train it in one process with the decisions of the gang, and return how far both lie apart.
    """
    import yaml

    workdir.mkdir(parents=True, exist_ok=True)
    path = workdir.with_suffix(".yaml")
    path.write_text(yaml.safe_dump_all(manifest(cell, size)), encoding="utf-8")
    started = time.monotonic()
    if read_json(workdir / RESULT) is None:
        _run(path, workdir, cell)
    seconds = time.monotonic() - started
    found = read_json(workdir / RESULT) or {}
    result = {**found["curve"][-1], "curve": found["curve"], "plans": found["plans"], "seconds": seconds}
    if compare:
        result["replayed"] = compared(cell, size, found)
    return result


def _run(path: Path, workdir: Path, cell: StudyCell) -> None:
    command = [sys.executable, "-m", "heterotp_cli", "run", str(path), "--workdir", str(workdir)]
    begun = (workdir / "run.json").exists()
    done = subprocess.run([*command, *(["--resume"] if begun else [])], capture_output=True, text=True, check=False)
    if done.returncode in (EXIT_STOPPED, 130):
        raise KeyboardInterrupt
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()
        raise Failed(
            f"bench: the gang of '{cell.name}' ended with {done.returncode}: {last[-1] if last else 'no cause'}"
        )


def compared(cell: StudyCell, size: StudySize, found: dict[str, Any]) -> dict[str, float]:
    """Return how far the same training in one process lies from the gang's: of accuracy, and of the losses."""
    from heterotp_cli.bench.study_training import replayed

    alone = replayed(replace(cell, shares=()), size, found["plans"])
    pairs = list(zip(alone["losses"], found["losses"], strict=True))
    return {
        "accuracy": alone["accuracy"],
        "loss": alone["loss"],
        "largestLossDifference": max(abs(mine - its) for mine, its in pairs),
        "firstIterationsLossDifference": max(abs(mine - its) for mine, its in pairs[:50]),
    }
