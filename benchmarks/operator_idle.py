"""What 1,000 running jobs cost the operator while nothing happens: the polls of their ranks 0, and what follows them.

    python benchmarks/operator_idle.py [--jobs 1000] [--before OTHER_SOURCE_TREE]

A fresh API server (tools/cluster) for every source tree in turn, with the operator's default settings. Every rank 0
ends an iteration in half a second, every number that it reports has 5 % noise at every poll, and it answers as the
trainer of this tree does (--plain: as trainers did that knew no conditional answers). Printed per tree:

| figure           | what it is                                                              | target  |
|------------------|-------------------------------------------------------------------------|---------|
| cpuShare         | of one core, taken by the operator's process                            | <= 0.25 |
| pollsPerSecond   | requests that the ranks answered; bytesPerPoll: of their answers        |         |
| connections      | opened by the operator, per second                                      |         |
| writesPerSecond  | of statuses, all jobs together; reconciles: of jobs                     |         |
| megabytes        | resident memory of the operator                                         |         |

Real etcd and kube-apiserver. Emulated: there are no nodes, this program writes the status of pods; one server answers
for all ranks 0, each on a loopback address of its own.
"""

import argparse
import asyncio
import random
import re
import secrets
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from aiohttp import web
from bare_cluster import ROOT, Api, Operator, install_crds, measured
from operator_ready import metrics_of
from operator_trust import make_jobs, path_of, run_pods, serve_ranks, shown

sys.path[:0] = [str(ROOT / "trainer")]
from heterotp_api import names  # noqa: E402
from heterotp_api.trainer_status import TrainerRank, TrainerStatus  # noqa: E402
from heterotp_trainer.reporting.conditional import ConditionalStatus  # noqa: E402
from heterotp_trainer.reporting.http_server import conditional_answer  # noqa: E402

NOISE_RATIO, ITERATION_SECONDS = 0.05, 0.5


class Rank0:
    """One job's rank 0: its iterations go on, and all its numbers are noisy."""

    def __init__(self, ranks: int, seed: int) -> None:
        self._ranks, self._random = ranks, random.Random(seed)
        self._started, self._offset = time.monotonic(), self._random.random()
        self.conditional = ConditionalStatus(self.status)

    def status(self) -> TrainerStatus:
        iteration = int((time.monotonic() - self._started) / ITERATION_SECONDS + self._offset)
        return TrainerStatus(
            job="j",
            attempt=1,
            state="running",
            started_at=1.0,
            iteration=iteration,
            total_iterations=1_000_000,
            iteration_seconds=self._noise(ITERATION_SECONDS),
            samples_per_second=self._noise(2000),
            loss=self._noise(2.5),
            eta_seconds=self._noise(50_000),
            idle_seconds=self._random.uniform(0, ITERATION_SECONDS),
            applied_generation=1,
            control_generation=1,
            ranks=tuple(self._rank(rank) for rank in range(self._ranks)),
        )

    def _rank(self, rank: int) -> TrainerRank:
        times = ("compute", "matmul", "full_matmul", "unit", "fixed", "wait", "data", "control")
        seconds = {f"{name}_seconds": self._noise(0.1234567) for name in times}
        speeds = {"relative_speed": self._noise(0.9), "slowdown": self._noise(1), "share": 1 / self._ranks}
        return TrainerRank(rank=rank, tp_rank=rank, device="cuda:NVIDIA A100", heads=1, **seconds, **speeds)

    def _noise(self, value: float) -> float:
        return value * self._random.uniform(1 - NOISE_RATIO, 1 + NOISE_RATIO)


class Ranks:
    """Rank 0 of all jobs, by the address that is asked."""

    def __init__(self, ranks: int, plain: bool) -> None:
        self._ranks, self._plain = ranks, plain
        self._of: dict[str, Rank0] = {}
        self._connections: set[tuple[str, int]] = set()  # of both ends' ports few repeat within minutes
        self.polls = self.bytes = 0

    async def serve(self) -> web.AppRunner:
        return await serve_ranks(self._answer)

    async def _answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        address = request.transport.get_extra_info("sockname")[0]
        rank0 = self._of.setdefault(address, Rank0(self._ranks, len(self._of)))
        challenge = {names.LEASE_CHALLENGE_HEADER: secrets.token_hex(16)}
        if self._plain:
            answer = web.json_response(text=rank0.conditional.text(), headers=challenge)
        else:
            answer = conditional_answer(rank0.conditional, request, challenge)
        self.polls, self.bytes = self.polls + 1, self.bytes + len(answer.body or b"")
        self._connections.add(request.transport.get_extra_info("peername"))
        return answer

    @property
    def connections(self) -> int:
        return len(self._connections)


async def measure(tree: Path, kubeconfig: Path, log: Path, arguments: argparse.Namespace) -> dict:
    """Return the figures of the operator of one tree."""
    operator, ranks = Operator(kubeconfig, log, tree), Ranks(arguments.ranks, arguments.plain)
    async with Api(kubeconfig) as api:
        await install_crds(api)
        runner = await ranks.serve()
        operator.start()
        try:
            jobs = await make_jobs(api, "default", arguments.jobs, arguments.pods)
            await run_pods(api, "default", jobs, arguments.pods)
            await asyncio.sleep(arguments.settle)
            return {"jobs": len(jobs), **await observe(api, operator, ranks, arguments)}
        finally:
            operator.process.kill()
            operator.process.wait()
            await runner.cleanup()


async def observe(api: Api, operator: Operator, ranks: Ranks, arguments: argparse.Namespace) -> dict:
    """Return what the operator takes while nothing happens."""
    written = 0

    async def listen() -> None:
        nonlocal written
        async for body in api.changes(path_of("heterotpjobs", "default")):
            written += bool(body)

    pictured = picture(operator, arguments.picture, arguments.seconds) if arguments.picture else None
    reconciled = _reconciles(operator)
    busy, since, before = operator.cpu_seconds(), time.monotonic(), (ranks.polls, ranks.bytes, ranks.connections)
    with suppress(TimeoutError):
        await asyncio.wait_for(listen(), arguments.seconds)
    seconds, cpu = time.monotonic() - since, operator.cpu_seconds() - busy
    polls, sent, connections = (now - then for now, then in zip(_counts(ranks), before, strict=True))
    if pictured is not None:
        pictured.wait()
    return {
        "cpuShare": cpu / seconds,
        "pollsPerSecond": polls / seconds,
        "bytesPerPoll": sent / max(1, polls),
        "connectionsPerSecond": connections / seconds,
        "writesPerSecond": written / seconds,
        "reconcilesPerSecond": (_reconciles(operator) - reconciled) / seconds,
        "megabytes": operator.memory()["now"],
    }


def _counts(ranks: Ranks) -> tuple[int, int, int]:
    return ranks.polls, ranks.bytes, ranks.connections


def _reconciles(operator: Operator) -> float:
    of_jobs = r'^heterotp_operator_reconcile_total\{kind="HeteroTPJob".*\} (\S+)$'
    found = re.findall(of_jobs, metrics_of(operator), re.M)
    return sum(map(float, found))


def picture(operator: Operator, command: str, seconds: float) -> subprocess.Popen:
    """Let py-spy draw where the operator's time goes."""
    target = ["--pid", str(operator.process.pid), "--duration", str(int(seconds) - 2), "--rate", "50"]
    return subprocess.Popen([command, "record", *target, "--format", "raw", "--output", "operator_idle.txt"])


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=8, help="of a job")
    parser.add_argument("--ranks", type=int, default=8, help="rows of a status document")
    parser.add_argument("--seconds", type=float, default=120.0, help="of the observation")
    parser.add_argument("--settle", type=float, default=45.0, help="seconds before it")
    parser.add_argument("--plain", action="store_true", help="ranks answer every poll with their whole status")
    parser.add_argument("--picture", help="path of py-spy: writes operator_idle.txt (stacks and their samples)")
    parser.add_argument("--before", type=Path, help="another source tree, measured side by side")
    parser.add_argument("--after", type=Path, default=ROOT, help="the source tree (this one)")
    arguments = parser.parse_args()
    for name in ("before", "after"):
        if tree := getattr(arguments, name):
            found = measured(lambda at, log, tree=tree: measure(tree.resolve(), at, log, arguments))
            print(f"{name:<7} {shown(found)}", flush=True)


if __name__ == "__main__":
    main()
