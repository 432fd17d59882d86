"""What `helm test` runs in the operator's image: does the API server know our kinds, does exactly one operator lead?"""

import json
import os
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
METRICS_PORT = 8080
PATIENCE_SECONDS = 60  # new rights need a moment; a Lease whose holder was killed is taken over after some 20


class Broken(Exception):
    """What is not as it should be, in one line."""


def job(ranks: int) -> dict[str, Any]:
    """Return a job with two pods; it is right with two ranks."""
    return {
        "apiVersion": "heterotp.io/v1alpha1",
        "kind": "HeteroTPJob",
        "metadata": {"name": "helm-test"},
        "spec": {
            "tensorParallelDegree": ranks,
            "workerGroups": [{"name": "a", "pods": 2, "template": {"spec": {"containers": [{"name": "trainer"}]}}}],
            "training": {"iterations": 1},
        },
    }


def dry_run(server: str, namespace: str, body: dict[str, Any], token: str, context: ssl.SSLContext) -> tuple[int, str]:
    """Ask the API server whether it would create a job; return the code of its answer, and its words."""
    url = f"{server}/apis/heterotp.io/v1alpha1/namespaces/{namespace}/heterotpjobs?dryRun=All&fieldValidation=Strict"
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError as error:
        raise Broken(f"the API server at {server} does not answer: {error}") from None


def check_kinds(server: str, namespace: str, token: str, context: ssl.SSLContext) -> None:
    """A job that is right is taken, and one whose ranks do not add up is refused by the CRD's rules."""
    code, words = dry_run(server, namespace, job(2), token, context)
    if code != 201:
        raise Broken(f"the API server does not take a HeteroTPJob: {code} {words}")
    code, words = dry_run(server, namespace, job(3), token, context)
    if code != 422 or "tensorParallelDegree" not in words:
        raise Broken(f"the API server takes a HeteroTPJob of 3 ranks in 2 pods: the CRDs are old; {code} {words}")


def leader(address: str) -> float:
    """Return what an operator's /metrics say of its leading."""
    host = f"[{address}]" if ":" in address else address
    with urllib.request.urlopen(f"http://{host}:{METRICS_PORT}/metrics", timeout=5) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("heterotp_operator_leader "):
                return float(line.split()[1])
    raise Broken(f"{address}: /metrics have no heterotp_operator_leader")


def addresses(host: str) -> list[str]:
    """Return the addresses of the ready operators: those that the headless Service names."""
    return sorted({str(info[4][0]) for info in socket.getaddrinfo(host, METRICS_PORT, type=socket.SOCK_STREAM)})


def check_leader(host: str, replicas: int) -> None:
    """All operators show metrics, and one of them leads."""
    found = addresses(host)
    leading = sum(map(leader, found))
    if len(found) != replicas or leading != 1:
        raise Broken(f"{len(found)} operators are ready, {leading:g} lead; wanted: {replicas}, 1")


def eventually(check: Callable[..., None], *arguments: Any) -> None:
    """Repeat a check until it passes, and say why when it never does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            check(*arguments)
            return
        except (Broken, OSError) as error:
            if time.monotonic() > deadline:
                raise Broken(f"{arguments[0]}: {error}") from None
        time.sleep(2)


def main() -> int:
    """Run both checks; return the exit code."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    try:
        token = (ACCOUNT / "token").read_text()
        eventually(check_kinds, server, os.environ["NAMESPACE"], token, context)
        print("ok: the API server takes a HeteroTPJob and refuses a wrong one")
        eventually(check_leader, os.environ["OPERATOR"], int(os.environ["REPLICAS"]))
        print("ok: every operator shows its metrics, and one leads")
    except Broken as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
