"""The levels of real ranks: nothing is calibrated by the paper; what an iteration takes is what it takes.

CPU: widths at which matrix products dominate, processes pinned to a core each, a rank slowed by real work (`repeat`).
GPU: the paper's widths, one GPU a rank, a rank slowed by its stream that spins after each product.
"""

import json
import os
from dataclasses import dataclass
from typing import Any, Literal

from heterotp_api.job import HeteroTPJob
from heterotp_api.names import API_VERSION, CONTAINER

from heterotp_cli.bench.emulation import DEPTH, FFN_RATIO, SIZES, VIT_1B
from heterotp_cli.bench.scenarios import BASELINE, EVICTED, OURS, GangRun, Size, Step, table_steps, zero

CORES = 2
PLACE = 0  # the rank that is slowed
PRIMITIVES = ("broadcastReduce", "scatterGather")
SELECTIONS = ("Rd", "Pri", "PriDiffE", "PriDiffR")
CPU_FIGURE, GPU_FIGURE = "real-cpu", "real-gpu"


@dataclass(frozen=True)
class RealMachine:
    """A stack of transformer blocks over real ranks of this machine; figure: that shows every strategy on it."""

    name: str
    ranks: int
    width: int
    rows: int
    depth: int
    heads: int = 16
    device: Literal["cpu", "cuda"] = "cpu"

    @property
    def mode(self) -> str:
        """Slowed CPU ranks compute their products chi times; on a GPU the stream spins as long."""
        return "repeat" if self.device == "cpu" else "spin"

    @property
    def figure(self) -> str:
        """The figure that shows every strategy on it."""
        return CPU_FIGURE if self.device == "cpu" else GPU_FIGURE

    @property
    def cores(self) -> int:
        """Cores that ranks are pinned to; 0: to none."""
        return CORES if self.device == "cpu" else 0

    def sizes(self, pace: float) -> list[Any]:
        """Return all that decides what an iteration takes, as far as it is known."""
        return [self.device, self.ranks, self.width, self.rows, self.depth, self.heads, os.cpu_count()]

    def job(self, name: str, speeds: tuple[float, ...], module: str, pace: float) -> HeteroTPJob:
        """Return a job of real ranks that runs `module`, shares by the speeds declared."""
        sizes = {"width": self.width, "heads": self.heads, "rows": self.rows, "depth": self.depth}
        environment = [{"name": SIZES, "value": json.dumps({**sizes, "ffnRatio": FFN_RATIO, "cores": self.cores})}]
        template = {
            "spec": {"containers": [{"name": CONTAINER, "command": ["python3", "-m", module], "env": environment}]}
        }
        groups = [
            {"name": f"r{number}", "relativeSpeed": speed, "device": {"type": self.device}, "template": template}
            for number, speed in enumerate(speeds)
        ]
        spec = {"tensorParallelDegree": self.ranks, "workerGroups": groups}  # without training: the command runs
        return HeteroTPJob.model_validate(
            {"apiVersion": API_VERSION, "kind": "HeteroTPJob", "metadata": {"name": name.lower()}, "spec": spec}
        )


CPU_2 = RealMachine("cpu-2", 2, 1024, 256, 4)
CPU_4 = RealMachine("cpu-4", 4, 1024, 256, 4)
GLOO_8 = RealMachine("gloo-8", 8, 256, 512, 1)  # Table I: as many ranks as the paper's, real transfers between them


def gpu_machine(gpus: int) -> RealMachine:
    """Return the paper's ViT-1B, cut to four blocks, over so many GPUs."""
    return RealMachine(f"gpu-{gpus}", gpus, VIT_1B.width, VIT_1B.rows, DEPTH, VIT_1B.heads, "cuda")


def gpu_runs(size: Size, gpus: int) -> list[GangRun]:
    """Return the gangs of the level of real GPUs."""
    return _strategy_runs(gpu_machine(gpus), size)


def chis(machine: RealMachine, chi: float) -> tuple[float, ...]:
    """Return chi of every rank."""
    return tuple(chi if rank == PLACE else 1.0 for rank in range(machine.ranks))


def used_chis(size: Size) -> tuple[float, ...]:
    """Return the slow-downs of this level: the least and the largest."""
    return tuple(dict.fromkeys((size.chis[0], size.chis[-1])))


def strategies() -> dict[str, dict[str, Any]]:
    """Return every strategy by name: the paper's, the paper's as printed, and ours."""
    found: dict[str, dict[str, Any]] = {"Baseline": BASELINE}
    found |= {f"ZERO-{name}": zero(name) for name in SELECTIONS}
    found |= {f"MIG {name}": {"strategy": "MIG", "mig": {"primitive": name}} for name in PRIMITIVES}
    found["SEMI"] = {"strategy": "SEMI", "semi": {"zero": {"selection": "PriDiffR"}}}
    found |= {f"{name} as printed": {"strategy": name, "preset": "paper"} for name in ("ZERO", "MIG", "SEMI")}
    return found | {name: {"strategy": name} for name in OURS}


def cpu_runs(size: Size) -> list[GangRun]:
    """Return the gangs of this level."""
    machines = (CPU_2, CPU_4) if size.everything else (CPU_2,)
    runs = [run for machine in machines for run in _strategy_runs(machine, size)]
    table = (Step("baseline", BASELINE, (1.0,) * GLOO_8.ranks, ("table1",)), *table_steps(size, GLOO_8.ranks))
    return [*runs, GangRun(GLOO_8.name, GLOO_8, (1.0,) * GLOO_8.ranks, table)]


def _strategy_runs(machine: RealMachine, size: Size) -> list[GangRun]:
    """Return the gangs of one machine: one for all policies; a new one where shares differ, or move."""
    even = (1.0,) * machine.ranks
    steps = [Step("baseline", BASELINE, even, (machine.figure,)), *_homogeneous(machine, size)]
    for chi in used_chis(size):
        slow = chis(machine, chi)
        named = strategies() | dict(size.policies)
        steps += [Step(f"{n} chi {chi:g}", p, slow, (machine.figure,)) for n, p in named.items() if n not in OURS]
    runs = [GangRun(machine.name, machine, even, tuple(steps))]
    for chi in used_chis(size):
        slow = chis(machine, chi)
        held: dict[str, tuple[tuple[float, ...], dict[str, Any]]] = {
            "oracle": (tuple(1 / each for each in slow), BASELINE),
            "evict": (tuple(EVICTED if each > 1 else 1.0 for each in slow), BASELINE),
            **{name: (even, strategies()[name]) for name in OURS},
        }
        for name, (speeds, policy) in held.items():
            step = Step(f"{name} chi {chi:g}", policy, slow, (machine.figure,))
            runs.append(GangRun(f"{machine.name}-{name}-{chi:g}", machine, speeds, (step,)))
    return runs


def _homogeneous(machine: RealMachine, size: Size) -> list[Step]:
    """Return ratios pruned of all ranks, by both selections: what that saves, and what selecting costs."""
    ranks = list(range(machine.ranks))
    return [
        Step(
            f"homogeneous {name} {gamma}",
            {"strategy": "ZERO", "zero": block},
            (1.0,) * machine.ranks,
            (machine.figure,),
        )
        for gamma in size.gammas
        for name in ("Rd", "Pri")
        for block in [{"selection": name, "fixedRatio": gamma, "ranks": ranks}]
    ]
