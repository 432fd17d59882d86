"""How the operator does with 1,000 jobs of 8 pods on a real API server (no kubelet: this script plays the pods).

    python benchmarks/operator_scale.py [--jobs 1000] [--pods 8] [--events 500]

It starts its own etcd + kube-apiserver + controller manager (tools/cluster) and prints one JSON document:
creation (jobs applied -> every pod there and every status written), cold start (an operator that finds all of it,
each job with one news -> every status written), resident memory, and pod event -> job status p50/p99.
"""

import argparse
import asyncio
import json
import os
import random
import ssl
import statistics
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "api")]

from heterotp_api import names  # noqa: E402
from heterotp_api.crd import crds  # noqa: E402

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOBS = f"/apis/{names.API_VERSION}/namespaces/default/heterotpjobs"
PODS = "/api/v1/namespaces/default/pods"
CONCURRENT = 32
PATIENCE_SECONDS = 900.0


class Api:
    """The API server, raw."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        self.server = cluster["server"]
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._headers = {"Authorization": f"Bearer {document['users'][0]['user']['token']}"}

    async def __aenter__(self) -> "Api":
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls)
        timeout = aiohttp.ClientTimeout(total=None)
        self.http = aiohttp.ClientSession(self.server, connector=connector, headers=self._headers, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    async def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> dict:
        data = None if body is None else json.dumps(body)
        async with self.http.request(method, path, data=data, headers={"Content-Type": kind}) as answer:
            document = await answer.json()
            if answer.status >= 400:
                raise RuntimeError(f"{method} {path}: {document.get('message')}")
            return document

    async def patch_status(self, path: str, status: dict) -> None:
        await self.call("PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json")

    async def items(self, path: str) -> list[dict]:
        return (await self.call("GET", f"{path}?resourceVersion=0"))["items"]


async def spread(calls: list) -> None:
    """Await all calls, so many at a time."""
    gate = asyncio.Semaphore(CONCURRENT)

    async def one(call: object) -> None:
        async with gate:
            await call

    await asyncio.gather(*map(one, calls))


async def until(check: object, every: float = 1.0) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await check():
        if time.monotonic() > deadline:
            raise TimeoutError("the operator did not get there")
        await asyncio.sleep(every)


def job(number: int, pods: int) -> dict:
    template = {"spec": {"containers": [{"name": names.CONTAINER, "image": "heterotp/trainer:bench"}]}}
    groups = [{"name": "a", "pods": pods, "template": template}]
    spec = {"tensorParallelDegree": pods, "workerGroups": groups, "training": {"model": {"preset": "vit-tiny"}}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "HeteroTPJob",
        "metadata": {"name": f"job-{number}"},
        "spec": spec,
    }


def ready(pod: str, value: bool) -> dict:
    """Return the status of a running pod whose container is, or is not, ready."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    state = {"running": {"startedAt": at}}
    container = {
        "name": names.CONTAINER,
        "ready": value,
        "restartCount": 0,
        "image": "i",
        "imageID": "",
        "state": state,
    }
    conditions = [{"type": "Ready", "status": str(value), "lastTransitionTime": at}]
    return {"phase": "Running", "containerStatuses": [container], "conditions": conditions}


class Operator:
    """The operator process under test."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        path = os.pathsep.join(str(ROOT / part) for part in ("api", "operator"))
        given = {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": path, "HETEROTP_METRICS_PORT": "18099"}
        self._env = {**os.environ, **given, "HETEROTP_IDENTITY": "bench"}
        self._log = log

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "heterotp_operator"]
            self.process = subprocess.Popen(command, env=self._env, stdout=log, stderr=log)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def memory(self) -> dict[str, float]:
        """Return resident memory now and at its highest, MB."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        return {name: int(fields[key].split()[0]) / 1024 for name, key in (("now", "VmRSS"), ("peak", "VmHWM"))}

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ready_of(body: dict) -> int:
    return sum(group.get("ready", 0) for group in body.get("status", {}).get("workerGroups", ()))


async def statuses(api: Api, wanted: int, jobs: int) -> bool:
    every = await api.items(JOBS)
    done = sum(1 for body in every if body.get("status", {}).get("phase") and ready_of(body) == wanted)
    return done == jobs


async def latencies(api: Api, jobs: int, events: int, rate: float) -> list[float]:
    """Flip the readiness of one pod per event, and measure until the job's status counts it."""
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
    operator, result = Operator(kubeconfig, log), {"jobs": jobs, "podsPerJob": pods}
    async with Api(kubeconfig) as api:
        for crd in crds():
            await api.call("POST", CRDS, crd)
        await asyncio.sleep(5)
        await spread([api.call("POST", JOBS, job(number, pods)) for number in range(jobs)])
        operator.start()
        started = time.monotonic()
        await until(lambda: all_pods(api, jobs * pods))
        await until(lambda: statuses(api, 0, jobs))
        result["creationSeconds"] = time.monotonic() - started
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


async def all_pods(api: Api, wanted: int) -> bool:
    return len(await api.items(PODS)) >= wanted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=8)
    parser.add_argument("--events", type=int, default=500)
    parser.add_argument("--rate", type=float, default=50.0)
    arguments = parser.parse_args()
    tools, name = ROOT / "tools" / "cluster", f"bench-{os.getpid()}"
    up = subprocess.run(
        [tools / "cp-up.sh", name],
        env={**os.environ, "CP_WITHOUT": "kwok scheduler"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    kubeconfig = Path(up.stdout.strip())
    log = kubeconfig.with_name("operator.log")
    try:
        print(json.dumps(asyncio.run(measure(kubeconfig, log, arguments)), indent=2))
    except BaseException:
        sys.stderr.write(log.read_text()[-4000:] if log.exists() else "")
        raise
    finally:
        subprocess.run([tools / "cp-down.sh", name], check=True)


if __name__ == "__main__":
    main()
