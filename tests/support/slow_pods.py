"""Jobs on the cluster that compute and read a disk for real, and what makes one of their pods slow for real."""

import time

from support.cluster_job import job
from support.kube import until
from support.places import ROOT

PROGRAM = ROOT / "tests" / "support" / "pods" / "reading_loop.py"
IMAGE = "heterotp/trainer:dev"
NODES = ("a100", "p100")  # of rank 0 and of rank 1
BURN = "import os; os.sched_setaffinity(0, {1})\nwhile True: pass"


def reading_job(space, name):
    """Start a job of two ranks, each on its own CPU and node. Nothing balances it."""
    space.kube.create("configmaps", space.name, {"metadata": {"name": name}, "data": {"loop.py": PROGRAM.read_text()}})
    groups = [
        {"name": "first", "template": {"spec": _pod(name, 0)}},
        {"name": "second", "template": {"spec": _pod(name, 1)}},
    ]
    return space.apply(job(name, groups, balancing={"policy": {"strategy": "None"}}))


def _pod(program, rank):
    variables = {"CPU": str(rank), "FILE": "/data/batches", "OMP_NUM_THREADS": "1"}
    container = {
        "name": "trainer",
        "command": ["python3", "/app/loop.py"],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
        "volumeMounts": [{"name": "app", "mountPath": "/app"}, {"name": "data", "mountPath": "/data"}],
    }
    volumes = [{"name": "app", "configMap": {"name": program}}, {"name": "data", "emptyDir": {}}]
    return {
        "nodeSelector": {"heterotp.io/accelerator": NODES[rank]},
        "containers": [container],
        "volumes": volumes,
        "terminationGracePeriodSeconds": 10,
    }


def neighbour(space, name):
    """Start a pod that computes on rank 1's CPU and has twice as much of a right to it."""
    container = {
        "name": "burn",
        "image": IMAGE,
        "command": ["python3", "-c", BURN],
        "resources": {"requests": {"cpu": "100m"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "nodeSelector": {"heterotp.io/accelerator": NODES[1]},
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    space.kube.create("pods", space.name, {"metadata": {"name": name}, "spec": spec})


def named(run, kind):
    """Wait until the job's status names a kind as rank 1's main cause; return the cause and the seconds waited."""
    since = time.monotonic()

    def check():
        own = [each for each in run.status.get("causes") or () if each["rank"] == 1]
        return own[0] if own and own[0]["kind"] == kind else None

    return until(lambda: f"{kind} is named: {run.status}", check, every=0.2), time.monotonic() - since


def forgotten(run, kind):
    """Wait until the job's status names this kind no longer."""
    until(
        lambda: f"{kind} is forgotten: {run.status}",
        lambda: all(each["kind"] != kind for each in run.status.get("causes") or ()),
        every=0.2,
    )
