"""A bare API server with one operator on it, for benchmarks: without a kubelet; the benchmark simulates the pods."""

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
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
NOT_IN_IMAGE = Path(__file__).parent / "not_in_image"  # hides what only tests need, and the client loads if it can
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
CONCURRENT = 32
PATIENCE_SECONDS = 900.0
MERGE = "application/merge-patch+json"


class Api:
    """A client of the API server, without a model of its objects."""

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

    async def changes(self, path: str) -> AsyncIterator[dict]:
        """Yield objects that are changed from now on; the first item is empty: the watch is open.

        The API server closes the watch of a client that is slow to read, as any is on a busy machine: it is opened
        again where it ended.
        """
        version, first = (await self.call("GET", f"{path}?limit=1"))["metadata"]["resourceVersion"], True
        while True:
            async with self.http.get(f"{path}?watch=1&resourceVersion={version}", read_bufsize=1 << 24) as answer:
                if first:
                    yield {}
                first = False
                async for line in answer.content:
                    body = json.loads(line)["object"]
                    version = body["metadata"]["resourceVersion"]
                    yield body


async def spread(calls: list) -> None:
    """Await all calls with a limit on concurrency."""
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
    """Return the status of a running pod with a ready, or not ready, container."""
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


class Measured:
    """A process whose CPU time and memory are read; it has started as `process`."""

    process: subprocess.Popen

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def memory(self) -> dict[str, float]:
        """Return current and peak resident memory, MB."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        return {name: int(fields[key].split()[0]) / 1024 for name, key in (("now", "VmRSS"), ("peak", "VmHWM"))}

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """Return a port that nothing listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Operator(Measured):
    """The operator process under test."""

    def __init__(self, kubeconfig: Path, log: Path, tree: Path = ROOT, settings: dict[str, str] | None = None) -> None:
        """tree: the sources that are run; settings: more variables of its environment."""
        self.port = free_port()
        path = os.pathsep.join([*(str(tree / part) for part in ("api", "operator")), str(NOT_IN_IMAGE)])
        given = {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": path, "HETEROTP_METRICS_PORT": str(self.port)}
        self._env = {**os.environ, **given, "HETEROTP_IDENTITY": "bench", **(settings or {})}
        self._log = log

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "heterotp_operator"]
            self.process = subprocess.Popen(command, env=self._env, stdout=log, stderr=log)


async def install_crds(api: Api) -> None:
    for crd in crds():
        await api.call("POST", CRDS, crd)
    if not await api.items(ACCOUNTS):  # pods need one; a controller manager, where there is one, makes it
        await api.call("POST", ACCOUNTS, {"metadata": {"name": "default"}})
    await asyncio.sleep(5)  # until they are served


async def all_pods(api: Api, wanted: int) -> bool:
    return len(await api.items(PODS)) >= wanted


def on_bare_cluster(measure: Callable[[Path, Path], Awaitable[dict]]) -> None:
    """Start an API server, run measure(kubeconfig, log of the operator), print the figures, stop the server."""
    print(json.dumps(measured(measure), indent=2))


def measured(measure: Callable[[Path, Path], Awaitable[dict]], variables: dict[str, str] | None = None) -> dict:
    """Start an API server, return what measure(kubeconfig, log of the operator) returns, stop the server.

    variables: of tools/cluster/cp-up.sh; without them there are only etcd and the API server.
    """
    tools, name = ROOT / "tools" / "cluster", f"bench-{os.getpid()}"
    up = subprocess.run(
        [tools / "cp-up.sh", name],
        env={**os.environ, **(variables or {"CP_WITHOUT": "kcm kwok scheduler"})},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    kubeconfig = Path(up.stdout.strip())
    log = kubeconfig.with_name("operator.log")
    try:
        return asyncio.run(measure(kubeconfig, log))
    except BaseException:
        sys.stderr.write(log.read_text()[-4000:] if log.exists() else "")
        raise
    finally:
        subprocess.run([tools / "cp-down.sh", name], check=True)
