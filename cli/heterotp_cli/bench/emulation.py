"""The paper's machine as emulated devices: eight V100 on PCIe 3, at the paper's own pace.

Every size of the paper's models is cut to 1/32 and 24 layers to 4; speed and link are scaled so that each product and
each transfer takes as long as the 6 that it stands for. What is real: the processes, the exchange, the decisions.

Where the numbers come from: 373 s per epoch of 782 iterations (Table I, no migration) is 0.477 s an iteration;
18.5 % (1B) and 23.5 % (3B) saved at gamma = 1/2 make matmul 0.37 and 0.47 of it. With fp16 activations a link of
10.5 GB/s then explains both shares: the all-reduces of an iteration take 0.27 s (1B) and 0.20 s (3B).
"""

import json
from dataclasses import dataclass
from typing import Any, Protocol

from heterotp_api.job import HeteroTPJob
from heterotp_api.names import API_VERSION, CONTAINER

SIZES = "HETEROTP_BENCH_SIZES"  # environment of the ranks: sizes of the stand-in, JSON
RANKS = 8
EPOCH_ITERATIONS = 782  # 50,000 images in batches of 64
DEPTH, PAPER_DEPTH, SCALE = 4, 24, 32  # PriDiff needs layers to tell apart
FFN_RATIO = 4
LINK_BYTES_PER_SECOND = 10.5e9  # PCIe 3 x16, measured rates are 10 to 12 GB/s
LATENCY_SECONDS = 20e-6  # of one step of a collective
PAPER_ITEM_BYTES, ITEM_BYTES = 2, 4  # fp16 there, fp32 here


class Machine(Protocol):
    """A model on a machine, as a gang of ranks; mode: how ranks are slowed, None: as their device does by itself."""

    @property
    def name(self) -> str:
        """Of its results."""

    @property
    def mode(self) -> str | None:
        """See above."""

    def sizes(self, pace: float) -> list[Any]:
        """Return all that decides what an iteration takes, JSON-ready."""

    def job(self, name: str, speeds: tuple[float, ...], module: str, pace: float) -> HeteroTPJob:
        """Return the job of the gang that runs `module`."""


@dataclass(frozen=True)
class PaperModel:
    """One model of the paper on its machine; rows: images x tokens of a batch."""

    name: str
    width: int
    heads: int
    rows: int
    iteration_seconds: float
    matmul_share: float

    @property
    def mode(self) -> None:
        """An emulated device takes chi times its time in every mode."""
        return None

    def sizes(self, pace: float) -> list[Any]:
        """Return all that decides what an iteration takes."""
        return [self.device(pace), self.tiny_width, self.tiny_rows, DEPTH]

    @property
    def tiny_width(self) -> int:
        """Width of the stand-in."""
        return self.width // SCALE

    @property
    def tiny_rows(self) -> int:
        """Rows of the stand-in's batch."""
        return self.rows // SCALE

    @property
    def matmul_seconds(self) -> float:
        """Seconds of an iteration in prunable products, homogeneous."""
        return self.iteration_seconds * self.matmul_share

    def device(self, pace: float) -> dict[str, Any]:
        """Return the emulated device that makes an iteration take as long as the paper's, times the pace."""
        stands_for = PAPER_DEPTH / DEPTH
        operations = 6 * self.tiny_rows * (4 + 2 * FFN_RATIO) * self.tiny_width**2 * DEPTH / RANKS
        bandwidth = LINK_BYTES_PER_SECOND / (SCALE**2 * PAPER_ITEM_BYTES / ITEM_BYTES * stands_for)
        latency = LATENCY_SECONDS * stands_for
        nbytes = self.tiny_rows * self.tiny_width * ITEM_BYTES
        collectives = 4 * DEPTH * (latency + 2 * (RANKS - 1) / RANKS * nbytes / bandwidth)
        return {
            "type": "emulated",
            "teraflops": operations / (self.matmul_seconds * pace) / 1e12,
            "fixedSeconds": max(0.0, self.iteration_seconds - self.matmul_seconds - collectives) * pace,
            "linkBytesPerSecond": bandwidth / pace,
            "linkLatencySeconds": latency * pace,
        }

    def job(self, name: str, speeds: tuple[float, ...], module: str, pace: float) -> HeteroTPJob:
        """Return a job of eight such devices that runs `module`, shares by the speeds declared."""
        sizes = {"width": self.tiny_width, "heads": self.heads, "rows": self.tiny_rows, "depth": DEPTH}
        seconds = {"iterationSeconds": self.iteration_seconds * pace, "matmulSeconds": self.matmul_seconds * pace}
        environment = [{"name": SIZES, "value": json.dumps({**sizes, "ffnRatio": FFN_RATIO, **seconds})}]
        container = {"name": CONTAINER, "command": ["python3", "-m", module], "env": environment}
        template = {"spec": {"containers": [container]}}
        even = len(set(speeds)) == 1
        groups = [
            {"name": f"r{number}", "relativeSpeed": speed, "device": self.device(pace), "template": template}
            | ({"processesPerPod": RANKS} if even else {})
            for number, speed in enumerate(speeds[:1] if even else speeds)
        ]
        spec = {"tensorParallelDegree": RANKS, "workerGroups": groups}
        return HeteroTPJob.model_validate(
            {"apiVersion": API_VERSION, "kind": "HeteroTPJob", "metadata": {"name": name.lower()}, "spec": spec}
        )


_SECONDS_1B = 373 / EPOCH_ITERATIONS
VIT_1B = PaperModel("vit-1b", 2048, 32, 64 * 65, _SECONDS_1B, 0.37)
# the same GPU: operations scale with rows x width^2, 1.125 times those of the 1B model
VIT_3B = PaperModel("vit-3b", 3072, 48, 32 * 65, _SECONDS_1B * 0.37 * 1.125 / 0.47, 0.47)
# width, layers and heads of the small models that are trained in their place, over as many ranks
SHAPES = {VIT_1B.name: (64, 2, 16), VIT_3B.name: (96, 2, 24)}
MODELS = {model.name: model for model in (VIT_1B, VIT_3B)}


def fluid_limit(model: PaperModel, chis: tuple[float, ...]) -> float:
    """Return T - M + M e / sum(1 / chi): the lower bound of every lossless method, seconds of an iteration."""
    matmul = model.matmul_seconds
    return model.iteration_seconds - matmul + matmul * len(chis) / sum(1 / chi for chi in chis)
