"""Shared by benchmarks: a local gang whose rank 0 prints one result, and lines of figures."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

MARK = "RESULT "


def print_result(result: Any) -> None:
    """Print the result of rank 0 for the process that started the gang."""
    print(MARK + json.dumps(result), flush=True)


def run(script: str, arguments: Sequence[str], spec: dict, ports: int, seconds: float = 900) -> Any:
    """Run `script --rank ARGUMENTS` on all ranks of a spec; return the result of rank 0; exits if the gang fails.

    ports: the first of two free ones; the status of rank 0 is served on the second.
    """
    ranks = spec["tensorParallelDegree"]
    with tempfile.TemporaryDirectory() as folder:
        environ = {
            **os.environ,
            "HETEROTP_SPEC": json.dumps(spec),
            "HETEROTP_PROCESSES": str(ranks),
            "HETEROTP_STATUS_PORT": str(ports + 1),
            "HETEROTP_WORKDIR": folder,
            "WORLD_SIZE": str(ranks),
            "MASTER_PORT": str(ports),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "heterotp_trainer.launch", "--", sys.executable, os.path.abspath(script)]
        command += ["--rank", *arguments]
        done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=seconds)
    line = next((text for text in done.stdout.splitlines() if MARK in text), None)
    if line is None:
        sys.exit(f"the gang failed ({done.returncode}):\n{done.stdout[-3000:]}")
    return json.loads(line.split(MARK, 1)[1])


def summary(name: str, values: Sequence[float], unit: str = "") -> str:
    """Return a line of min, median and max."""
    low, mid, high = min(values), statistics.median(values), max(values)
    return f"  {name:<8} min {low:.4f}  median {mid:.4f}  max {high:.4f}{unit}"
