"""Jobs of 8 pods on nodes that kwok plays: until all run, what that cost, and until all are gone.

    python benchmarks/operator_ready.py [--jobs 100 500 1000] [--repetitions 3] [--peer] [--before OTHER_SOURCE_TREE]
                                        [--drain]

etcd, API server, controller manager, scheduler and kwok (tools/cluster) share the machine with the operator; no limit
of calls is in force, and pods have no addresses, so that nothing is polled. In every run a bare client first makes as
many pods and services: the floor, which says how fast the machine is at this moment. --drain: then 1,000 pods become
unready at once, as on nodes that are lost, and 1,000 are deleted at once, as in a drain: until each job says so.

--peer: Kubeflow's training-operator v1.9.3, built from its module (tools/cluster/training-operator.sh), does the
same in turns with ours, each on an API server of its own: PyTorchJobs of one master and seven workers.
"""

import argparse
import asyncio
import json
import re
import statistics
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bare_cluster import JOBS, PODS, ROOT, Api, Operator, install_crds, job, measured, spread, until
from heterotp_api import names
from training_operator import TrainingOperator

PODS_PER_JOB = 8
SERVICES = "/api/v1/namespaces/default/services"
NODES = "/api/v1/nodes"
PODS_PER_NODE = 1000
FAULTY_PODS = 1000
WIDE_OPEN = "--kube-api-qps 5000 --kube-api-burst 5000"
CLUSTER = {
    "CP_WITHOUT": "none",
    # nodes that kwok plays on a busy machine report late: their pods would be marked as not ready
    "CP_KCM_ARGS": f"{WIDE_OPEN} --concurrent-gc-syncs 20 --node-monitor-grace-period 1h",
    "CP_SCHEDULER_ARGS": WIDE_OPEN,
    "CP_KWOK_ARGS": f"--config {ROOT / 'tools' / 'cluster' / 'kwok-without-addresses.yaml'}",
}
SETTINGS = {"HETEROTP_API_REQUESTS_PER_SECOND": "100000"}
OF_THE_PEER = ("exist", "ready", "gone", "readyCpu", "cpu", "peakRss", "requests", "writesPerJob")


class Ours(Operator):
    """Our operator, and what the benchmark has to know of it."""

    jobs = JOBS

    async def prepare(self, api: Api) -> None:
        await install_crds(api)

    def works(self) -> bool:
        return "heterotp_operator_leader 1.0" in metrics_of(self)

    def job(self, number: int, pods: int) -> dict:
        return job(number, pods)

    def calls(self) -> dict[str, float]:
        """Return the operator's calls to the API server: all, and writes of the status of jobs."""
        calls = re.findall(r"^heterotp_operator_api_requests_total\{(.*)\} (\S+)$", metrics_of(self), re.M)
        writes = [float(n) for labels, n in calls if 'resource="heterotpjobs"' in labels and 'verb="patch"' in labels]
        return {"requests": sum(float(n) for _, n in calls), "writes": sum(writes)}


Contestant = Ours | TrainingOperator


async def make_nodes(api: Api, jobs: int) -> None:
    room = {"cpu": "10000", "memory": "100000Gi", "pods": str(2 * PODS_PER_NODE)}
    for number in range(jobs * PODS_PER_JOB // PODS_PER_NODE + 2):
        labels = {"kubernetes.io/hostname": f"fake-{number}"}
        await api.call("POST", NODES, {"metadata": {"name": f"fake-{number}", "labels": labels}})
        await api.patch_status(f"{NODES}/fake-{number}", {"allocatable": room, "capacity": room})


async def count(api: Api, path: str) -> int:
    page = await api.call("GET", f"{path}?limit=1")
    return len(page["items"]) + (page["metadata"].get("remainingItemCount") or 0)


def at_least(api: Api, path: str, wanted: int) -> Callable:
    async def check() -> bool:
        return await count(api, path) >= wanted

    return check


def none_left(api: Api, *paths: str) -> Callable:
    async def check() -> bool:
        return not sum([await count(api, path) for path in paths])

    return check


@asynccontextmanager
async def watching(api: Api, path: str, see: Callable[[dict], None]) -> AsyncIterator[None]:
    """Hand every object that changes meanwhile to `see`."""
    opened = asyncio.Event()

    async def listen() -> None:
        async for body in api.changes(path):
            opened.set()
            if body:
                see(body)

    async with asyncio.TaskGroup() as group:  # whatever ends the watch ends the run
        task = group.create_task(listen())
        await opened.wait()
        try:
            yield
        finally:
            task.cancel()


async def floor(api: Api, jobs: int) -> dict:
    """A bare client makes the pods and a service per job; until all pods run, and until all are deleted."""
    running: set[str] = set()

    def see(body: dict) -> None:
        if body.get("status", {}).get("phase") == "Running":
            running.add(body["metadata"]["name"])

    async def all_run() -> bool:
        return len(running) == jobs * PODS_PER_JOB

    async def make(number: int) -> None:
        ports = [{"name": "rendezvous", "port": 29500}]
        service = {"metadata": {"name": f"floor-{number}"}, "spec": {"clusterIP": "None", "ports": ports}}
        await api.call("POST", SERVICES, service)
        for index in range(PODS_PER_JOB):
            template = job(number, PODS_PER_JOB)["spec"]["workerGroups"][0]["template"]
            pod = {"metadata": {"name": f"floor-{number}-{index}", "labels": {"floor": str(number)}}, **template}
            await api.call("POST", PODS, pod)

    started = time.monotonic()
    async with watching(api, PODS, see):
        await spread([make(number) for number in range(jobs)])
        made = time.monotonic() - started
        await until(all_run, 0.1)
    result = {"made": made, "run": time.monotonic() - started}
    started = time.monotonic()
    await asyncio.gather(api.call("DELETE", PODS), api.call("DELETE", f"{SERVICES}?labelSelector=!component"))
    await until(none_left(api, PODS), 0.5)
    return {**result, "gone": time.monotonic() - started}


def condition(body: dict, kind: str) -> str | None:
    found = (c["status"] for c in body.get("status", {}).get("conditions", ()) if c["type"] == kind)
    return next(found, None)


async def works(operator: Contestant) -> bool:
    if operator.process.poll() is not None:
        raise RuntimeError("the operator ended")
    try:
        return await asyncio.to_thread(operator.works)
    except OSError:
        return False


def metrics_of(operator: Operator) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/metrics", timeout=60) as answer:
        return answer.read().decode()


class Jobs:
    """What a watch of the jobs has shown."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.listeners: list[Callable[[str, dict], None]] = []

    def see(self, body: dict) -> None:
        name = body["metadata"]["name"]
        (self.running.add if condition(body, "Running") == "True" else self.running.discard)(name)
        for listener in self.listeners:
            listener(name, body)


async def start(api: Api, operator: Contestant, jobs: int, seen: Jobs) -> dict:
    """Make the jobs; until all pods exist and all jobs run."""

    async def all_run() -> bool:
        return len(seen.running) == jobs

    started, busy = time.monotonic(), operator.cpu_seconds()
    bodies = (operator.job(number, PODS_PER_JOB) for number in range(jobs))
    making = asyncio.create_task(spread([api.call("POST", operator.jobs, body) for body in bodies]))
    await until(at_least(api, PODS, jobs * PODS_PER_JOB), 0.25)
    result = {"exist": time.monotonic() - started}
    await until(all_run, 0.1)
    await making
    calls = await asyncio.to_thread(operator.calls)
    return {
        **result,
        "ready": time.monotonic() - started,
        "readyCpu": operator.cpu_seconds() - busy,
        "writesPerJob": calls["writes"] / jobs,
        "requests": calls["requests"],
    }


async def end(api: Api, path: str) -> float:
    """Delete the jobs; until the garbage collector has removed all they had."""
    started = time.monotonic()
    await api.call("DELETE", path)
    await until(none_left(api, path, PODS), 0.5)
    return time.monotonic() - started


async def fault(api: Api, jobs: int, seen: Jobs, strike: Callable, shows: Callable[[dict], bool]) -> dict:
    """Strike pods of as many jobs as there are, 1,000 in all; seconds from a job's first until its status shows it."""
    struck: dict[str, float] = {}
    took: list[float] = []

    def listen(name: str, body: dict) -> None:
        if name in struck and shows(body):
            took.append(time.monotonic() - struck.pop(name))

    async def one(name: str, index: int) -> None:
        struck.setdefault(name, time.monotonic())
        await strike(f"{PODS}/{names.pod_name(name, 'a', index, 1)}")

    async def all_show() -> bool:
        return not struck

    hit = min(jobs, FAULTY_PODS)
    each = min(PODS_PER_JOB, FAULTY_PODS // hit)
    seen.listeners.append(listen)
    started = time.monotonic()
    await spread([one(f"job-{number}", index) for number in range(hit) for index in range(each)])
    made = time.monotonic() - started
    await until(all_show, 0.05)
    seen.listeners.remove(listen)
    took.sort()
    return {"pods": hit * each, "strikes": made, "p50": statistics.median(took), "p99": took[int(0.99 * len(took))]}


async def drain(api: Api, jobs: int, seen: Jobs) -> dict:
    """Lose the nodes of 1,000 pods, then drain 1,000."""

    async def unready(path: str) -> None:
        await api.call(
            "PATCH",
            f"{path}/status",
            {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
            "application/strategic-merge-patch+json",
        )

    async def evict(path: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": path.rpartition("/")[2]}}
        await api.call("POST", f"{path}/eviction", body)

    lost = await fault(api, jobs, seen, unready, lambda body: condition(body, "PodsReady") == "False")
    drained = await fault(api, jobs, seen, evict, lambda body: condition(body, "Restarting") == "True")
    return {"lost": lost, "drained": drained}


async def measure(operator: Contestant, jobs: int, with_drain: bool, kubeconfig: Path) -> dict:
    seen = Jobs()
    async with Api(kubeconfig) as api:
        await operator.prepare(api)
        await make_nodes(api, jobs)
        result = {"floor": await floor(api, jobs)}
        operator.start()
        try:
            await until(lambda: works(operator), 0.1)
            await asyncio.sleep(2)  # until its watches are open
            begun = operator.cpu_seconds()
            async with watching(api, operator.jobs, seen.see):
                result |= await start(api, operator, jobs, seen)
                if with_drain:
                    result |= await drain(api, jobs, seen)
                result["gone"] = await end(api, operator.jobs)
            result["cpu"], result["peakRss"] = operator.cpu_seconds() - begun, operator.memory()["peak"]
        finally:
            operator.stop()
    return result


def one_run(tree: Path | None, jobs: int, with_drain: bool) -> dict:
    """Measure our operator of a source tree, or the peer (None), on an API server of its own."""

    async def run(kubeconfig: Path, log: Path) -> dict:
        if tree is None:
            return await measure(TrainingOperator(kubeconfig, log), jobs, False, kubeconfig)
        return await measure(Ours(kubeconfig, log, tree, SETTINGS), jobs, with_drain, kubeconfig)

    return measured(run, CLUSTER)


def spread_of(values: list) -> object:
    """Return min, median and max of figures, however deep they are."""
    if isinstance(values[0], dict):
        return {name: spread_of([each[name] for each in values]) for name in values[0]}
    return [round(each, 2) for each in (min(values), statistics.median(values), max(values))]


def of_the_peer(ours: list[dict], peers: list[dict]) -> dict:
    """Return our figures over the peer's of the same turn: min, median, max."""
    ratios = {name: [our[name] / peer[name] for our, peer in zip(ours, peers, strict=True)] for name in OF_THE_PEER}
    return {name: spread_of(values) for name, values in ratios.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, 500, 1000])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--peer", action="store_true", help="measure Kubeflow's training-operator, too, in turns")
    parser.add_argument("--before", type=Path, help="measure these sources, too, in turns")
    parser.add_argument("--drain", action="store_true")
    arguments = parser.parse_args()
    trees: dict[str, Path | None] = {"now": ROOT}
    trees |= {"before": arguments.before.resolve()} if arguments.before else {}
    trees |= {"peer": None} if arguments.peer else {}
    for jobs in arguments.jobs:
        runs: dict[str, list[dict]] = {name: [] for name in trees}
        for _ in range(arguments.repetitions):
            for name, tree in trees.items():
                run = one_run(tree, jobs, arguments.drain)
                runs[name].append(run)
                print(json.dumps({"tree": name, "jobs": jobs, **run}), file=sys.stderr, flush=True)
        for name, done in runs.items():
            print(json.dumps({"tree": name, "jobs": jobs, **spread_of(done)}), flush=True)
        if arguments.peer:
            print(json.dumps({"jobs": jobs, "ofThePeer": of_the_peer(runs["now"], runs["peer"])}), flush=True)


if __name__ == "__main__":
    main()
