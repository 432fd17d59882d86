"""Jobs of 8 pods on nodes that kwok plays: until all run, what that cost, and until all are gone.

    python benchmarks/operator_ready.py [--jobs 100 500 1000] [--repetitions 3] [--before OTHER_SOURCE_TREE] [--drain]

etcd, API server, controller manager, scheduler and kwok (tools/cluster) share the machine with the operator; no limit
of calls is in force, and pods have no addresses, so that nothing is polled. In every run a bare client first makes as
many pods and services: the floor, which says how fast the machine is at this moment. --drain: then 1,000 pods become
unready at once, as on nodes that are lost, and 1,000 are deleted at once, as in a drain: until each job says so.

The peer is Kubeflow's training-operator v1.9.3, measured once on another day. Its seconds and CPU seconds are scaled by
the floor of each run over the floor of that day. That one was not measured then: our operator of commit b3930f2 took
24.4 s with 100 jobs on that day, and 20.15 s beside a floor of 6.39 s here, which makes 7.74 s.
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
PEER = {  # jobs -> seconds until ready, CPU seconds until then
    100: {"ready": 19.5, "readyCpu": 3.8},
    500: {"ready": 128.3, "readyCpu": 23.7},
}
FLOOR_THEN_PER_JOB = 0.0774
TARGETS = {100: {"ready": 0.7, "readyCpu": 0.9}, 500: {"ready": 0.65, "readyCpu": 0.9}}  # of the peer's


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


async def leads(operator: Operator) -> bool:
    if operator.process.poll() is not None:
        raise RuntimeError("the operator ended")
    try:
        return "heterotp_operator_leader 1.0" in await asyncio.to_thread(metrics_of, operator)
    except OSError:
        return False


def metrics_of(operator: Operator) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/metrics", timeout=60) as answer:
        return answer.read().decode()


def scrape(operator: Operator) -> dict[str, float]:
    """Return the operator's calls to the API server: all, and writes of the status of jobs."""
    calls = re.findall(r"^heterotp_operator_api_requests_total\{(.*)\} (\S+)$", metrics_of(operator), re.M)
    writes = [float(n) for labels, n in calls if 'resource="heterotpjobs"' in labels and 'verb="patch"' in labels]
    return {"requests": sum(float(n) for _, n in calls), "writes": sum(writes)}


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


async def start(api: Api, operator: Operator, jobs: int, seen: Jobs) -> dict:
    """Make the jobs; until all pods exist and all jobs run."""

    async def all_run() -> bool:
        return len(seen.running) == jobs

    started, busy = time.monotonic(), operator.cpu_seconds()
    making = asyncio.create_task(spread([api.call("POST", JOBS, job(number, PODS_PER_JOB)) for number in range(jobs)]))
    await until(at_least(api, PODS, jobs * PODS_PER_JOB), 0.25)
    result = {"exist": time.monotonic() - started}
    await until(all_run, 0.1)
    await making
    calls = await asyncio.to_thread(scrape, operator)
    return {
        **result,
        "ready": time.monotonic() - started,
        "readyCpu": operator.cpu_seconds() - busy,
        "writesPerJob": calls["writes"] / jobs,
        "requests": calls["requests"],
    }


async def end(api: Api) -> float:
    """Delete the jobs; until the garbage collector has removed all they had."""
    started = time.monotonic()
    await api.call("DELETE", JOBS)
    await until(none_left(api, JOBS, PODS), 0.5)
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


async def measure(tree: Path, jobs: int, with_drain: bool, kubeconfig: Path, log: Path) -> dict:
    operator, seen = Operator(kubeconfig, log, tree, SETTINGS), Jobs()
    async with Api(kubeconfig) as api:
        await install_crds(api)
        await make_nodes(api, jobs)
        result = {"floor": await floor(api, jobs)}
        operator.start()
        try:
            await until(lambda: leads(operator), 0.1)
            await asyncio.sleep(2)  # until its watches are open
            begun = operator.cpu_seconds()
            async with watching(api, JOBS, seen.see):
                result |= await start(api, operator, jobs, seen)
                if with_drain:
                    result |= await drain(api, jobs, seen)
                result["gone"] = await end(api)
            result["cpu"], result["peakRss"] = operator.cpu_seconds() - begun, operator.memory()["peak"]
        finally:
            operator.stop()
    return result


def spread_of(values: list) -> object:
    """Return min, median and max of figures, however deep they are."""
    if isinstance(values[0], dict):
        return {name: spread_of([each[name] for each in values]) for name in values[0]}
    return [round(each, 2) for each in (min(values), statistics.median(values), max(values))]


def against_peer(jobs: int, runs: list[dict]) -> dict:
    """Return each target and the median share of the peer's figure, scaled by the floor of the same run."""
    shares = {}
    for name, target in TARGETS.get(jobs, {}).items():
        scaled = [run[name] / (PEER[jobs][name] * run["floor"]["run"] / (FLOOR_THEN_PER_JOB * jobs)) for run in runs]
        shares[name] = {"target": target, "share": round(statistics.median(scaled), 2)}
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, 500, 1000])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--before", type=Path, help="measure these sources, too, in turns")
    parser.add_argument("--drain", action="store_true")
    arguments = parser.parse_args()
    trees = {"now": ROOT} | ({"before": arguments.before.resolve()} if arguments.before else {})
    for jobs in arguments.jobs:
        runs: dict[str, list[dict]] = {name: [] for name in trees}
        for _ in range(arguments.repetitions):
            for name, tree in trees.items():
                run = measured(lambda *at, tree=tree, jobs=jobs: measure(tree, jobs, arguments.drain, *at), CLUSTER)
                runs[name].append(run)
                print(json.dumps({"tree": name, "jobs": jobs, **run}), file=sys.stderr, flush=True)
        for name, done in runs.items():
            figures = {"tree": name, "jobs": jobs, **spread_of(done), "ofThePeer": against_peer(jobs, done)}
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
