"""Simulates nodes and the ranks on them: binds pods, runs them, ends them, and carries out faults of pods and nodes."""

import json
import time
from collections import defaultdict
from contextlib import suppress

from chaos.actor import Actor
from chaos.faults.pods import NODES
from heterotp_api import names
from support.kube import KubeError
from support.simulated_kubelet import SimulatedKubelet, now

HEARTBEAT_SECONDS = 10.0
ADDRESS = "127.0.0.1"
OVER = ("Succeeded", "Failed")


def step_of(pod, gang, mark, stuck, lost, done):
    """Return what the kubelet does with a pod now: a name and its arguments, () for nothing.

    gang: the pods of its job and attempt; mark: what a fault wants; stuck: why new pods do not start; lost: nodes that
    do nothing; done: whether the job's work is done.
    """
    node, phase = pod["spec"].get("nodeName"), pod["status"].get("phase")
    if node in lost:
        return ()
    if pod["metadata"].get("deletionTimestamp"):
        return ("end", 143) if phase == "Running" else ("remove",)
    if phase in OVER:
        return ()
    if phase == "Running":
        return _running(pod, gang, mark, done)
    if stuck == "Unschedulable" and node is None:
        return ("unschedulable", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    if node is None:
        return ("bind",)
    return ("wait_state", "ImagePullBackOff", "Back-off pulling image") if stuck == "ImagePull" else ("run",)


def _running(pod, gang, mark, done):
    if mark:
        return mark
    if any(other["status"].get("phase") == "Failed" for other in gang):
        return ("end", names.EXIT_PEER_LOST)
    if done:
        return ("end", 0)
    ready = [c["status"] for c in pod["status"].get("conditions", ()) if c["type"] == "Ready"]
    return () if ready == ["True"] else ("run",)  # the node was thought to be lost


def attempt_of(pod):
    return int(pod["metadata"]["labels"][names.LABEL_ATTEMPT])


class Kubelet(Actor):
    """All nodes of the namespace; stuck: job uid -> why its pods do not start."""

    def __init__(self, kube, namespace, tenant):
        super().__init__()
        self.kube, self.namespace, self._tenant = kube, namespace, tenant
        self.simulated = SimulatedKubelet(kube, namespace)
        self.stuck, self._marks = {}, {}
        self._losses = defaultdict(int)  # node -> faults that it is lost by
        self._worked = defaultdict(float)  # job uid -> seconds that its whole gang has run
        self._last, self._heartbeat = time.monotonic(), -HEARTBEAT_SECONDS

    def mark(self, uid, step):
        """Let this become of a pod that runs."""
        self._marks[uid] = step

    def lose(self, node):
        self._losses[node] += 1

    def find(self, node):
        self._losses[node] -= 1
        self._heartbeat = -HEARTBEAT_SECONDS

    def lost(self):
        return {node for node, losses in self._losses.items() if losses}

    def step(self):
        self._beat()
        jobs = {job["metadata"]["uid"]: job for job in self.kube.list("heterotpjobs", self.namespace)}
        gangs = defaultdict(list)
        for pod in self.kube.list("pods", self.namespace):
            gangs[pod["metadata"]["ownerReferences"][0]["uid"], attempt_of(pod)].append(pod)
        elapsed, self._last = time.monotonic() - self._last, time.monotonic()
        for (uid, attempt), gang in gangs.items():
            self._work(jobs.get(uid), uid, attempt, gang, elapsed)
            for pod in gang:
                self._act(pod, gang, uid)

    def _work(self, job, uid, attempt, gang, elapsed):
        running = [pod for pod in gang if pod["status"].get("phase") == "Running"]
        if job is None or len(running) < job["spec"]["tensorParallelDegree"]:
            return
        self._worked[uid] += elapsed
        document = {}
        control = self.kube.get("configmaps", self.namespace, names.control_name(job["metadata"]["name"]))
        with suppress(TypeError, KeyError, ValueError):  # damaged
            document = json.loads(control["data"][names.CONTROL_FILE])
        self._tenant.running(job, attempt, document)

    def _act(self, pod, gang, uid):
        mark = self._marks.get(pod["metadata"]["uid"], ())
        done = self._worked[uid] >= self._tenant.work_of(uid)
        name, *arguments = step_of(pod, gang, mark, self.stuck.get(uid), self.lost(), done) or ("",)
        if not name:
            return
        if name == "bind":
            arguments = [self._node_for(pod)]
            if arguments == [None]:
                return
        with suppress(KubeError):  # gone, or changed by somebody else
            getattr(self.simulated, name)(pod, *arguments, **({"podIP": ADDRESS} if name == "run" else {}))

    def _node_for(self, pod):
        live = [node for node in NODES if node not in self.lost()]
        return live[sum(pod["metadata"]["name"].encode()) % len(live)] if live else None

    def _beat(self):
        """Keep the nodes that are not lost registered and ready."""
        if time.monotonic() - self._heartbeat < HEARTBEAT_SECONDS:
            return
        for node in set(NODES) - self.lost():
            if self.kube.get("nodes", None, node) is None:
                self.kube.create("nodes", None, {"metadata": {"name": node}})
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
            ready |= {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
            self.kube.patch("nodes", None, node, {"status": {"conditions": [ready]}}, "status")
        self._heartbeat = time.monotonic()
