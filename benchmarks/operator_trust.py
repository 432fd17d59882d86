"""What hostile jobs cost the operator, and what jobs cost the API server.

    python benchmarks/operator_trust.py [--part writes hostile fair] [--jobs 1000] [--before OTHER_SOURCE_TREE]

Each part takes a fresh API server (tools/cluster) for every source tree in turn, with the operator's default settings:

| part    | what happens                                           | printed                             | target    |
|---------|--------------------------------------------------------|-------------------------------------|-----------|
| writes  | 20 running jobs; every number that rank 0 reports has  | status writes per job and minute    | <= 2      |
|         | 5 % noise at every poll                                |                                     |           |
| hostile | --jobs running jobs; then some ranks 0 hang, then some | memory (peak), longest answer of    | <= 200 MB |
|         | answer without end, then some with 3.7 MB, then some   | /healthz: stalls of the event loop, | < 10 s    |
|         | redirect to an impossible host; all of them at the end;| whether the operator lives          | yes       |
|         | then a namespace stores --stored jobs and ConfigMaps   |                                     | <= 400 MB |
|         | of a megabyte, and the operator starts again           |                                     |           |
| fair    | a pod's event -> its job's status, in a namespace      | p50, p99 of both, ratio of the p99s | <= 1.2    |
|         | alone; then beside one with 200 hung ranks and a gang  |                                     |           |
|         | of 16,384 pods that is created meanwhile               |                                     |           |

Real etcd and kube-apiserver. Emulated: there are no nodes, this program writes the status of pods; one server answers
for all ranks 0, each on a loopback address of its own.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from aiohttp import web
from bare_cluster import ROOT, Api, Operator, install_crds, job, measured, ready, spread, until
from heterotp_api import names

sys.path.insert(0, str(ROOT / "tests"))
from support.hoards import configmap, large_job, refused_job

PORT = 19477
NOISE_JOBS, NOISE_RATIO, NOISE_RANKS = 20, 0.05, 8
HOSTILE_RANKS = 90_000  # rows of a status of 3.7 MB
HOSTILE = {"hung": 50, "endless": 50, "huge": 6, "redirect": 50}  # kind of answer -> jobs of 1,000
HUNG, GANG, GROUP = 200, 16_384, 1024
PROBE_SECONDS = 0.05


def path_of(kind: str, namespace: str, name: str = "") -> str:
    """Return the API server's path of a namespace's objects of a kind, or of one of them."""
    prefix = "/api/v1" if kind != "heterotpjobs" else f"/apis/{names.API_VERSION}"
    return f"{prefix}/namespaces/{namespace}/{kind}" + (f"/{name}" if name else "")


def address(number: int) -> str:
    """Return the loopback address of a job's rank 0."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


# -- ranks and jobs ----------------------------------------------------------------------------------------------------


async def serve_ranks(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.AppRunner:
    """Serve the status of all ranks 0, each on a loopback address of its own, until the runner's `cleanup`."""
    app = web.Application()
    app.router.add_get("/status", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", PORT, backlog=1024).start()
    return runner


class Ranks:
    """Rank 0 of all jobs; what each answers may be changed."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}  # address -> a key of HOSTILE; the others are good
        rows = [{"rank": rank, "tpRank": rank, "device": ""} for rank in range(HOSTILE_RANKS)]
        self._huge = json.dumps(self._document(rows), separators=(",", ":")).encode()
        self._random = random.Random(0)

    async def serve(self) -> web.AppRunner:
        return await serve_ranks(self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        kind = self.kinds.get(request.transport.get_extra_info("sockname")[0])
        if kind == "hung":
            await asyncio.sleep(3600)
        if kind == "redirect":
            return web.Response(status=302, headers={"Location": "http://a..b/"})
        if kind == "huge":
            return web.Response(body=self._huge, content_type="application/json")
        if kind == "endless":
            return await self._endless(request)
        return web.json_response(self._document([self._row(rank) for rank in range(NOISE_RANKS)]))

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(b" " * 1024)
                await asyncio.sleep(0.01)
        return response

    def _document(self, rows: list[dict]) -> dict:
        times = {"iterationSeconds": self._noise(0.5) if len(rows) == NOISE_RANKS else 0.5}
        return {"job": "j", "attempt": 1, "state": "running", "startedAt": 0, "iteration": 1, **times, "ranks": rows}

    def _row(self, rank: int) -> dict:
        times = ("compute", "matmul", "fullMatmul", "unit", "fixed", "wait", "data", "control")
        seconds = {f"{name}Seconds": self._noise(0.1234567) for name in times}
        shares = {"relativeSpeed": self._noise(1), "slowdown": self._noise(1), "share": 1 / NOISE_RANKS}
        return {"rank": rank, "tpRank": rank, "device": "cuda:NVIDIA A100", **seconds, **shares}

    def _noise(self, value: float) -> float:
        return value * self._random.uniform(1 - NOISE_RATIO, 1 + NOISE_RATIO)


async def make_jobs(api: Api, namespace: str, count: int, pods: int, first: int = 0) -> list[str]:
    """Create a namespace's jobs, their ranks on PORT; return their names."""
    bodies = [job(number, pods) for number in range(first, first + count)]
    for body in bodies:
        body["spec"]["metrics"] = {"port": PORT}
    await spread([api.call("POST", path_of("heterotpjobs", namespace), body) for body in bodies])
    return [body["metadata"]["name"] for body in bodies]


async def run_pods(api: Api, namespace: str, jobs: list[str], pods: int, first: int = 0) -> None:
    """Wait for the jobs' pods and set them to running; rank 0 of each has an address of its own."""

    async def created() -> bool:
        found = {body["metadata"]["name"] for body in await api.items(path_of("pods", namespace))}
        return all(names.pod_name(each, "a", index, 1) in found for each in jobs for index in range(pods))

    await until(created)
    calls = []
    for number, each in enumerate(jobs, first):
        for index in range(pods):
            status = ready("", True) | ({"podIP": address(number)} if index == 0 else {})
            calls.append(api.patch_status(path_of("pods", namespace, names.pod_name(each, "a", index, 1)), status))
    await spread(calls)

    async def running() -> bool:
        statuses = {
            b["metadata"]["name"]: b.get("status", {}) for b in await api.items(path_of("heterotpjobs", namespace))
        }
        return all(statuses[each].get("phase") == "Running" for each in jobs)

    await until(running)


async def make_namespace(api: Api, namespace: str) -> None:
    await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    await api.call("POST", path_of("serviceaccounts", namespace), {"metadata": {"name": "default"}})


# -- the parts ---------------------------------------------------------------------------------------------------------


async def writes(api: Api, operator: Operator, ranks: Ranks, arguments: argparse.Namespace) -> dict:
    """Return how often the statuses of steady jobs are written."""
    count = min(NOISE_JOBS, arguments.jobs)
    jobs = await make_jobs(api, "default", count, 1)
    await run_pods(api, "default", jobs, 1)
    await asyncio.sleep(arguments.settle)
    seen, since = 0, time.monotonic()

    async def listen() -> None:
        nonlocal seen
        async for body in api.changes(path_of("heterotpjobs", "default")):
            seen += bool(body)

    with suppress(TimeoutError):
        await asyncio.wait_for(listen(), arguments.seconds)
    minutes = (time.monotonic() - since) / 60
    return {"jobs": count, "minutes": minutes, "writesPerJobAndMinute": seen / count / minutes}


async def hostile(api: Api, operator: Operator, ranks: Ranks, arguments: argparse.Namespace) -> dict:
    """Return memory and stalls of the operator while ranks 0 turn hostile, one kind after the other."""
    jobs = await make_jobs(api, "default", arguments.jobs, arguments.pods)
    await run_pods(api, "default", jobs, arguments.pods)
    await asyncio.sleep(arguments.settle)
    phases, at = {"good": await observe(operator, arguments.seconds)}, 0
    for kind, of_thousand in HOSTILE.items():
        count = max(1, round(of_thousand * len(jobs) / 1000)) if kind != "huge" else of_thousand
        ranks.kinds |= {address(number): kind for number in range(at, at + count)}
        at += count
        phases[f"{count} {kind}"] = await observe(operator, arguments.seconds)
    await store_large(api, arguments.stored)
    phases[f"{3 * arguments.stored} large objects stored"] = await observe(operator, arguments.seconds)
    if operator.process.poll() is None:
        operator.stop()
    operator.start()
    phases["started again"] = await observe(operator, arguments.seconds)
    return {"jobs": len(jobs), "podsPerJob": arguments.pods, "phases": phases}


async def store_large(api: Api, count: int) -> None:
    """Store valid jobs, jobs that the operator refuses, and ConfigMaps with its label: a megabyte each."""
    await make_namespace(api, "hoard")
    for kind, make in (("heterotpjobs", large_job), ("heterotpjobs", refused_job), ("configmaps", configmap)):
        bodies = [make(f"{make.__name__.replace('_', '-')}-{number}") for number in range(count)]
        await spread([api.call("POST", path_of(kind, "hoard"), body) for body in bodies])


async def observe(operator: Operator, seconds: float) -> dict:
    """Return what the operator costs in the next seconds."""
    if operator.process.poll() is not None:
        return {"ended": operator.process.returncode}
    command = [sys.executable, __file__, "--probe", str(seconds), "--port", str(operator.port)]
    probe = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    memory, answer = operator.memory(), asyncio.create_task(probe.communicate())
    while not answer.done():
        await asyncio.wait([answer], timeout=0.2)
        with suppress(KeyError, FileNotFoundError):  # it has just ended
            memory = operator.memory()
    took = sorted(json.loads((await answer)[0]))
    found = {"megabytes": memory["now"], "peakMegabytes": memory["peak"]}
    if took:
        found |= {"longestAnswerSeconds": took[-1], "p99AnswerSeconds": took[int(0.99 * len(took))]}
    return found | ({"ended": operator.process.returncode} if operator.process.poll() is not None else {})


def probe(seconds: float, port: int) -> None:
    """Print the seconds of all answers of the operator to /healthz, which its event loop gives."""
    took, deadline = [], time.monotonic() + seconds
    while time.monotonic() < deadline:
        since = time.monotonic()
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=120).read()
            took.append(time.monotonic() - since)
        time.sleep(PROBE_SECONDS)
    print(json.dumps(took))


async def fair(api: Api, operator: Operator, ranks: Ranks, arguments: argparse.Namespace) -> dict:
    """Return the latencies of a good namespace alone, and beside a bad one."""
    for namespace in ("good", "bad"):
        await make_namespace(api, namespace)
    count = min(100, arguments.jobs)
    good = await make_jobs(api, "good", count, 2)
    await run_pods(api, "good", good, 2)
    await asyncio.sleep(arguments.settle)
    await latencies(api, good, arguments.rate, len(good))  # warms up
    alone = await latencies(api, good, arguments.rate, arguments.events)
    ranks.kinds |= {address(number): "hung" for number in range(count, count + arguments.hung)}
    bad = await make_jobs(api, "bad", arguments.hung, 1, first=count)
    await run_pods(api, "bad", bad, 1, first=count)
    await api.call("POST", path_of("heterotpjobs", "bad"), large_gang(arguments.gang))

    async def begun() -> bool:
        return len(await api.items(path_of("pods", "bad"))) > len(bad)

    await until(begun)
    beside = await latencies(api, good, arguments.rate, arguments.events)
    created = len(await api.items(path_of("pods", "bad"))) - len(bad)
    ratio = beside["p99"] / alone["p99"]
    return {"hung": len(bad), "gang": arguments.gang, "alone": alone, "beside": beside, "p99Ratio": ratio} | {
        "podsOfTheGangMeanwhile": created
    }


def large_gang(pods: int) -> dict:
    """Return a job of so many pods, in worker groups of as many as one may have."""
    body = job(0, pods)
    (group,) = body["spec"]["workerGroups"]
    counts = [min(GROUP, pods - first) for first in range(0, pods, GROUP)]
    body["spec"]["workerGroups"] = [{**group, "name": f"g{n}", "pods": count} for n, count in enumerate(counts)]
    body["metadata"]["name"] = "gang"
    return body


async def latencies(api: Api, jobs: list[str], rate: float, events: int) -> dict:
    """Change the readiness of one pod per event; return the seconds until its job's status includes it."""
    sent: dict[str, tuple[int, float]] = {}
    took: list[float] = []
    opened = asyncio.Event()

    async def listen() -> None:
        async for body in api.changes(path_of("heterotpjobs", "good")):
            opened.set()
            name = body.get("metadata", {}).get("name")
            count = sum(group.get("ready", 0) for group in body.get("status", {}).get("workerGroups", ()))
            if name in sent and sent[name][0] == count:
                took.append(time.monotonic() - sent.pop(name)[1])

    task = asyncio.create_task(listen())
    await opened.wait()
    now_ready = dict.fromkeys(jobs, True)
    turns = deque(jobs)
    for _ in range(events):
        while turns[0] in sent:  # its last event still waits: all do
            await asyncio.sleep(1 / rate)
        turns.rotate(-1)
        name = turns[-1]
        now_ready[name] = not now_ready[name]
        sent[name] = 1 + now_ready[name], time.monotonic()
        pod = names.pod_name(name, "a", 1, 1)
        await api.patch_status(path_of("pods", "good", pod), ready(pod, now_ready[name]))
        await asyncio.sleep(1 / rate)

    async def drained() -> bool:
        return not sent

    await until(drained, 0.05)
    for name in (each for each in jobs if not now_ready[each]):
        pod = names.pod_name(name, "a", 1, 1)
        await api.patch_status(path_of("pods", "good", pod), ready(pod, True))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    ordered = sorted(took)
    return {"events": len(took), "p50": statistics.median(ordered), "p99": ordered[int(0.99 * len(ordered))]}


Part = Callable[[Api, Operator, Ranks, argparse.Namespace], Awaitable[dict]]
PARTS: dict[str, Part] = {"writes": writes, "hostile": hostile, "fair": fair}


async def measure(part: str, tree: Path, kubeconfig: Path, log: Path, arguments: argparse.Namespace) -> dict:
    """Run one part with the operator of one tree."""
    operator, ranks = Operator(kubeconfig, log, tree), Ranks()
    async with Api(kubeconfig) as api:
        await install_crds(api)
        runner = await ranks.serve()
        operator.start()
        try:
            return await PARTS[part](api, operator, ranks, arguments)
        finally:
            if operator.process.poll() is None:
                operator.process.kill()
                operator.process.wait()
            await runner.cleanup()


def shown(value: object) -> str:
    """Return figures for people."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(each)}" for name, each in value.items())
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=tuple(PARTS), default=list(PARTS))
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=8, help="of a job of part hostile")
    parser.add_argument("--hung", type=int, default=HUNG)
    parser.add_argument("--gang", type=int, default=GANG)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--stored", type=int, default=40, help="large objects of each of three kinds, part hostile")
    parser.add_argument("--rate", type=float, default=20.0, help="events per second")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each observation")
    parser.add_argument("--settle", type=float, default=30.0, help="seconds before the first observation")
    parser.add_argument("--before", type=Path, help="another source tree, measured side by side")
    parser.add_argument("--after", type=Path, default=ROOT, help="the source tree (this one)")
    parser.add_argument("--probe", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.probe:
        probe(arguments.probe, arguments.port)
        return
    trees = {name: tree.resolve() for name in ("before", "after") if (tree := getattr(arguments, name))}
    for part in arguments.part:
        for name, tree in trees.items():
            result = measured(lambda at, log, part=part, tree=tree: measure(part, tree, at, log, arguments))
            phases = result.pop("phases", {})
            print(f"{part:<8}{name:<7} {shown(result)}", flush=True)
            for phase, figures in phases.items():
                print(f"{'':<17}then {phase}: {shown(figures)}", flush=True)


if __name__ == "__main__":
    main()
