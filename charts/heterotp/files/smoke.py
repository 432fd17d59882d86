"""The program of `helm test`: checks that the kinds are served, that one operator leads, and that it may list them."""

import http.client
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
# for both checks together: new rights take effect after a moment, a Lease of a killed holder is taken over after about
# 20 s, and the last try may take another minute (see activeDeadlineSeconds in tests/smoke.yaml)
PATIENCE_SECONDS = 120
LEADS = "heterotp_operator_leader"
LISTED = 'heterotp_operator_api_requests_total{code="200",resource="heterotpjobs",verb="list"}'


class Broken(Exception):
    """A failed check, described in one line."""


def job(ranks: int) -> dict[str, Any]:
    """Return a job with two pods; it is valid with two ranks, where the CRD has the newest field of the status."""
    return {
        "apiVersion": "heterotp.io/v1alpha1",
        "kind": "HeteroTPJob",
        "metadata": {"name": "helm-test"},
        "spec": {
            "tensorParallelDegree": ranks,
            "workerGroups": [{"name": "a", "pods": 2, "template": {"spec": {"containers": [{"name": "trainer"}]}}}],
            "training": {"iterations": 1},
        },
        "status": {"completedAttempt": 0},  # not stored, but an unknown field is refused
    }


def fetch(request: urllib.request.Request, timeout: float, context: ssl.SSLContext) -> tuple[int, str]:
    """Return code and text of a response, also of a refusal. Raises Broken without a response."""
    try:
        try:
            answer = urllib.request.urlopen(request, timeout=timeout, context=context)
        except urllib.error.HTTPError as refusal:
            answer = refusal
        with answer:
            return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise Broken(f"{request.type}://{request.host} does not answer: {error!r}") from None


def dry_run(server: str, namespace: str, body: dict[str, Any], token: str, context: ssl.SSLContext) -> tuple[int, str]:
    """Create a job as a dry run; return code and text of the response."""
    url = f"{server}/apis/heterotp.io/v1alpha1/namespaces/{namespace}/heterotpjobs?dryRun=All&fieldValidation=Strict"
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    return fetch(urllib.request.Request(url, json.dumps(body).encode(), headers), 30, context)


def check_kinds(server: str, namespace: str, token: str, context: ssl.SSLContext) -> None:
    """Check that a valid job is accepted, and that the CRD's rules refuse a wrong number of ranks. Raises Broken."""
    code, words = dry_run(server, namespace, job(2), token, context)
    if code != 201:
        old = "; the CRDs are older than the operator" if code == 400 else ""
        raise Broken(f"the API server does not take a HeteroTPJob: {code} {words}{old}")
    code, words = dry_run(server, namespace, job(3), token, context)
    if code != 422 or "tensorParallelDegree" not in words:
        raise Broken(f"the API server takes a HeteroTPJob of 3 ranks in 2 pods: the CRDs are old; {code} {words}")


def any_certificate() -> ssl.SSLContext:
    """Return a context without verification: connections use addresses, the certificate has a DNS name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def metrics(scheme: str, address: str) -> str:
    """Return /metrics of an operator. Raises Broken."""
    host = f"[{address}]" if ":" in address else address
    request = urllib.request.Request(f"{scheme}://{host}:{METRICS_PORT}/metrics")
    code, text = fetch(request, 5, any_certificate())
    if code != 200:
        raise Broken(f"{request.full_url}: {code} {text}")
    return text


def value(text: str, sample: str) -> float:
    """Return the value of a sample of /metrics, 0 if it is absent."""
    line = next((line for line in text.splitlines() if line.startswith(f"{sample} ")), "0")
    return float(line.rpartition(" ")[2])


def addresses(host: str) -> list[str]:
    """Return the addresses of the ready operators, from the headless Service. Raises Broken."""
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(host, METRICS_PORT, type=socket.SOCK_STREAM)})
    except OSError as error:
        raise Broken(f"{host} has no address, so no operator is ready: {error}") from None


def check_operators(scheme: str, host: str, replicas: int) -> None:
    """Check that all operators serve metrics, that one leads, and that it has listed jobs. Raises Broken."""
    found = [metrics(scheme, address) for address in addresses(host)]
    leaders = [text for text in found if value(text, LEADS) == 1]
    if len(found) != replicas or len(leaders) != 1:
        raise Broken(f"{host}: {len(found)} operators are ready, {len(leaders)} lead; wanted: {replicas}, 1")
    if not value(leaders[0], LISTED):
        raise Broken(f"{host}: the leader has not listed heterotpjobs: see its log, most likely rights are missing")


def eventually(deadline: float, check: Callable[..., None], *arguments: Any) -> None:
    """Repeat a check until it passes; raises its error after the deadline (monotonic seconds)."""
    while True:
        try:
            check(*arguments)
            return
        except Broken:
            if time.monotonic() > deadline:
                raise
        time.sleep(2)


def main() -> int:
    """Run both checks; return the exit code."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        token = (ACCOUNT / "token").read_text()
        eventually(deadline, check_kinds, server, os.environ["NAMESPACE"], token, context)
        print("ok: the API server takes a HeteroTPJob and refuses a wrong one")
        operators = os.environ["SCHEME"], os.environ["OPERATOR"], int(os.environ["REPLICAS"])
        eventually(deadline, check_operators, *operators)
        print("ok: every operator shows its metrics, one leads, and it lists jobs")
    except Broken as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
