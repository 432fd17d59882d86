"""One policy for 1,000 running jobs: until all control documents are written, all ranks follow, the status shows it.

    python benchmarks/policy_scale.py [--jobs 1000] [--pods 8]

Real etcd and kube-apiserver (tools/cluster), the operator with its default settings (at most 200 API calls a second).
There are no nodes: this script simulates the pods. One server simulates rank 0 of every job, each on a separate
loopback address; it follows a control document as soon as the API server stores it, as a notified kubelet would within
a second.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path

from aiohttp import web
from bare_cluster import JOBS as JOBS_PATH
from bare_cluster import MERGE, PODS, Api, Operator, all_pods, install_crds, job, on_bare_cluster, ready, spread, until
from heterotp_api import names

PORT = 9400
ITERATION_SECONDS = 0.5
BEFORE = 1000  # iterations of the jobs at the first poll
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
POLICIES = f"/apis/{names.API_VERSION}/namespaces/default/balancingpolicies"
OWNED = f"labelSelector=app.kubernetes.io/managed-by%3D{names.MANAGED_BY}"


def address(number: int) -> str:
    """Return the loopback address of a job's rank 0."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


class Ranks:
    """Rank 0 of all jobs, and a watch of their control documents."""

    def __init__(self, jobs: int, pods: int) -> None:
        self._pods = pods
        self.documents: dict[str, dict] = {}
        self._jobs = {address(number): f"job-{number}" for number in range(jobs)}
        self._since = time.monotonic()
        self.polls = 0

    async def serve(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/status", self._status)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", PORT).start()
        return runner

    async def _status(self, request: web.Request) -> web.Response:
        self.polls += 1
        assert request.transport is not None
        name = self._jobs[request.transport.get_extra_info("sockname")[0]]
        generation = self.documents.get(name, {}).get("generation", 0)
        iteration = BEFORE + int((time.monotonic() - self._since) / ITERATION_SECONDS)
        document = {"job": name, "attempt": 1, "state": "running", "startedAt": 0, "iteration": iteration}
        rows = [self._rank(rank) for rank in range(self._pods)]
        times = {"iterationSeconds": ITERATION_SECONDS, "appliedGeneration": generation}
        return web.json_response({**document, **times, "ranks": rows})

    def _rank(self, rank: int) -> dict:
        """Return the status row of a rank with all fields; its times vary by 1 to 2 %, as real ones do."""
        noise = 1 + 0.01 * ((self.polls * 7 + rank * 3) % 5 - 2)
        times = ("compute", "matmul", "fullMatmul", "unit", "fixed", "wait", "data", "control")
        seconds = {f"{name}Seconds": 0.1234567 * noise for name in times}
        shares = {"relativeSpeed": noise, "slowdown": noise, "share": 1 / self._pods, "measuredSlowdown": 1.0}
        return {"rank": rank, "tpRank": rank, "device": "cuda:NVIDIA A100", **seconds, **shares}

    async def watch(self, api: Api) -> None:
        async with api.http.get(f"{CONFIGMAPS}?watch=1&{OWNED}", read_bufsize=1 << 24) as answer:
            async for line in answer.content:
                body = json.loads(line)["object"]
                job_name = body["metadata"]["labels"][names.LABEL_JOB]
                self.documents[job_name] = json.loads(body["data"][names.CONTROL_FILE])

    def documents_with(self, strategy: str) -> int:
        return sum(1 for document in self.documents.values() if document["balancing"]["strategy"] == strategy)


async def start(api: Api, jobs: int, pods: int) -> None:
    """Set every pod to running; the pod of rank 0 has the address of its server."""
    calls = []
    for number in range(jobs):
        for index in range(pods):
            status = ready("", True) | ({"podIP": address(number)} if index == 0 else {})
            calls.append(api.patch_status(f"{PODS}/{names.pod_name(f'job-{number}', 'a', index, 1)}", status))
    await spread(calls)


async def running(api: Api, jobs: int) -> bool:
    bodies = await api.items(JOBS_PATH)
    statuses = [body.get("status", {}) for body in bodies]
    follow = [s for s in statuses if s.get("phase") == "Running" and s.get("balancing", {}).get("appliedGeneration")]
    return len(follow) == jobs


async def calls(operator_port: int, api: Api) -> float:
    """Return the number of API calls of the operator so far."""
    async with api.http.get(f"http://127.0.0.1:{operator_port}/metrics") as answer:
        text = await answer.text()
    lines = [line for line in text.splitlines() if line.startswith("heterotp_operator_api_requests_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def change(api: Api, ranks: Ranks, operator: Operator, jobs: int) -> dict[str, float]:
    """Apply one policy; return the seconds and calls until all its effects are complete."""
    before, cpu = await calls(operator.port, api), operator.cpu_seconds()
    spec = {"selector": {}, "strategy": "ZERO"}
    kind = {"apiVersion": names.API_VERSION, "kind": "BalancingPolicy", "metadata": {"name": "all"}, "spec": spec}
    begun = time.monotonic()
    await api.call("POST", POLICIES, kind)

    async def written_everywhere() -> bool:
        return ranks.documents_with("ZERO") == jobs

    async def reported() -> bool:
        status = (await api.call("GET", f"{POLICIES}/all")).get("status", {})
        return status.get("appliedJobs") == jobs

    await until(written_everywhere, 0.05)
    written = time.monotonic() - begun
    wrote, busy = await calls(operator.port, api), operator.cpu_seconds() - cpu
    await until(reported, 0.2)
    return {
        "allDocumentsWrittenSeconds": round(written, 2),
        "apiCallsMeanwhile": wrote - before,
        "cpuShareMeanwhile": round(busy / written, 2),
        "statusSaysAllFollowSeconds": round(time.monotonic() - begun, 2),
    }


async def idle(operator: Operator, ranks: Ranks, seconds: float = 30.0) -> dict[str, float]:
    """Return the cost of polling and watching without changes."""
    cpu, polls, since = operator.cpu_seconds(), ranks.polls, time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - since
    return {
        "cpuShare": round((operator.cpu_seconds() - cpu) / passed, 2),
        "pollsPerSecond": round((ranks.polls - polls) / passed, 1),
    }


async def measure(kubeconfig: Path, log: Path, arguments: argparse.Namespace) -> dict:
    jobs, pods = arguments.jobs, arguments.pods
    operator, ranks = Operator(kubeconfig, log), Ranks(jobs, pods)
    result: dict = {"jobs": jobs, "podsPerJob": pods}
    async with Api(kubeconfig) as api:
        await install_crds(api)
        runner = await ranks.serve()
        watch = asyncio.create_task(ranks.watch(api))
        await spread([api.call("POST", JOBS_PATH, job(number, pods)) for number in range(jobs)])
        operator.start()
        await until(lambda: all_pods(api, jobs * pods))
        await start(api, jobs, pods)
        await until(lambda: running(api, jobs))
        result["running"] = {"megabytes": operator.memory(), **await idle(operator, ranks)}
        result["create"] = await change(api, ranks, operator, jobs)
        result["megabytes"] = operator.memory()
        begun = time.monotonic()
        await api.call("PATCH", f"{POLICIES}/all", {"spec": {"strategy": "SEMI"}}, MERGE)

        async def written_everywhere() -> bool:
            return ranks.documents_with("SEMI") == jobs

        await until(written_everywhere, 0.05)
        result["edit"] = {"allDocumentsWrittenSeconds": round(time.monotonic() - begun, 2)}
        operator.stop()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await runner.cleanup()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=8)
    arguments = parser.parse_args()
    on_bare_cluster(lambda kubeconfig, log: measure(kubeconfig, log, arguments))


if __name__ == "__main__":
    main()
