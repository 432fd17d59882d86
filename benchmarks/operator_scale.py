"""The operator with 1,000 jobs of 8 pods on a real API server (no kubelet: this script simulates the pods).

    python benchmarks/operator_scale.py [--jobs 1000] [--pods 8] [--events 500] [--requests 200]

It starts its own etcd + kube-apiserver (tools/cluster) and prints one JSON document: creation (jobs applied -> all pods
created; and until all statuses say so, which wait up to 120 s for pods that come up), cold start (an operator starts
with all objects, of which each job has one change -> all statuses written), resident memory, pod event -> job status
p50/p99. The event is one that changes only a count of pods, which waits for a second.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from pathlib import Path

from bare_cluster import JOBS, PODS, Api, Operator, all_pods, install_crds, job, on_bare_cluster, ready, spread, until
from heterotp_api import names


def ready_of(body: dict) -> int:
    return sum(group.get("ready", 0) for group in body.get("status", {}).get("workerGroups", ()))


async def statuses(api: Api, wanted: int, jobs: int) -> bool:
    every = await api.items(JOBS)
    shown = (body for body in every if body.get("status", {}).get("completedAttempt"))
    done = sum(ready_of(body) == wanted for body in shown)
    return done == jobs


async def latencies(api: Api, jobs: int, events: int, rate: float) -> list[float]:
    """Change the readiness of one pod per event; measure the time until the status of the job includes it."""
    sent: dict[str, float] = {}
    took: list[float] = []
    chosen = random.Random(0).sample(range(jobs), min(events, jobs))

    async def listen() -> None:
        version = (await api.call("GET", f"{JOBS}?limit=1"))["metadata"]["resourceVersion"]
        path = f"{JOBS}?watch=1&resourceVersion={version}"
        async with api.http.get(path, read_bufsize=1 << 24) as answer:
            listening.set()
            async for line in answer.content:
                body = json.loads(line)["object"]
                name = body["metadata"]["name"]
                if name in sent and ready_of(body) == 2:
                    took.append(time.monotonic() - sent.pop(name))

    listening = asyncio.Event()
    task = asyncio.create_task(listen())
    await listening.wait()
    for number in chosen:
        name = f"job-{number}"
        pod = names.pod_name(name, "a", 1, 1)
        sent[name] = time.monotonic()
        await api.patch_status(f"{PODS}/{pod}", ready(pod, True))
        await asyncio.sleep(1 / rate)

    async def drained() -> bool:
        return not sent

    await until(drained, 0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return took


async def measure(kubeconfig: Path, log: Path, arguments: argparse.Namespace) -> dict:
    jobs, pods = arguments.jobs, arguments.pods
    operator = Operator(kubeconfig, log, settings={"HETEROTP_API_REQUESTS_PER_SECOND": str(arguments.requests)})
    result = {"jobs": jobs, "podsPerJob": pods, "requestsPerSecond": arguments.requests}
    async with Api(kubeconfig) as api:
        await install_crds(api)
        await spread([api.call("POST", JOBS, job(number, pods)) for number in range(jobs)])
        operator.start()
        started = time.monotonic()
        await until(lambda: all_pods(api, jobs * pods))
        result["creationSeconds"] = time.monotonic() - started
        await until(lambda: statuses(api, 0, jobs))
        result["creationShownSeconds"] = time.monotonic() - started
        result["creationMegabytes"] = operator.memory()
        operator.stop()
        first = [names.pod_name(f"job-{number}", "a", 0, 1) for number in range(jobs)]
        await spread([api.patch_status(f"{PODS}/{pod}", ready(pod, True)) for pod in first])
        operator.start()
        started = time.monotonic()
        await until(lambda: statuses(api, 1, jobs))
        result["coldStartSeconds"] = time.monotonic() - started
        result["coldStartCpuSeconds"] = operator.cpu_seconds()
        await asyncio.sleep(15)
        busy, since = operator.cpu_seconds(), time.monotonic()
        took = sorted(await latencies(api, jobs, arguments.events, arguments.rate))
        result["cpuShare"] = (operator.cpu_seconds() - busy) / (time.monotonic() - since)
        result["eventsPerSecond"] = arguments.rate
        result["eventToStatusSeconds"] = {
            "p50": statistics.median(took),
            "p99": took[int(0.99 * len(took))],
            "max": took[-1],
        }
        result["megabytes"] = operator.memory()
        operator.stop()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=8)
    parser.add_argument("--events", type=int, default=500)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--requests", type=int, default=200, help="most calls per second of the operator")
    arguments = parser.parse_args()
    on_bare_cluster(lambda kubeconfig, log: measure(kubeconfig, log, arguments))


if __name__ == "__main__":
    main()
