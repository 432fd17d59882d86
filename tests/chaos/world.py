"""All parts of a run on the bare API server: what faults act on."""

from contextlib import suppress
from uuid import uuid4

from chaos.actor import OwnKube
from chaos.api_process import ApiProcess
from chaos.faults.users import STRATEGIES
from chaos.kubelet import Kubelet, attempt_of
from chaos.operators import Operators, Sampler
from chaos.tenant import ENDED, Tenant
from chaos.watcher import PLURALS, Watcher
from support.kube import Kube, KubeError, make_namespace
from support.proxy import Proxy

CHILDREN = ("pods", "services", "configmaps", "networkpolicies")

CHANGED = ("balancingpolicies", "stragglerinjections")


def is_current(body):
    """Return whether the status of an object is of its last edit."""
    return (body.get("status") or {}).get("observedGeneration") == body["metadata"]["generation"]


class Requests:
    """The faults of requests that are in force: the first one that has something for a request wins."""

    def __init__(self):
        self._faults = ()

    def add(self, fault):
        self._faults = (*self._faults, fault)

    def remove(self, fault):
        self._faults = tuple(each for each in self._faults if each != fault)

    def __call__(self, method, path):
        return next((found for fault in self._faults if (found := fault(method, path)) is not None), None)


class World:
    """The bare API server, an operator behind a proxy, jobs, and a simulated kubelet."""

    strategies = STRATEGIES
    settle_seconds = 240.0  # in which every job comes to its end once the faults are over

    def __init__(self, guardian, kubeconfig, recorder, seed):
        self.recorder, self.namespace = recorder, f"chaos-{seed}-{uuid4().hex[:6]}"
        self.kube = OwnKube(kubeconfig)
        make_namespace(self.kube, self.namespace)
        self.api_server = ApiProcess(kubeconfig)
        self._direct = Kube(kubeconfig)
        self.proxy = Proxy(self._direct)
        self.requests = self.proxy.fault = Requests()
        through = self.proxy.kubeconfig(recorder.directory / "kubeconfig")
        self.tenant = Tenant(self.kube, self.namespace, seed)
        self.kubelet = Kubelet(self.kube, self.namespace, self.tenant)
        self.operators = Operators(guardian, through, self.namespace, recorder)
        watchers = [Watcher(kubeconfig, self.namespace, plural, recorder) for plural in PLURALS]
        self.actors = [*watchers, self.kubelet, self.tenant, self.operators, Sampler(self.operators, recorder)]

    def start(self):
        for actor in self.actors:
            actor.start()
        return self

    def close(self):
        for actor in self.actors:
            actor.ask_to_stop()
        self.operators.close()
        for actor in reversed(self.actors):
            actor.stop()
        self.proxy.close()
        self._direct.close()
        self.kube.close_all()
        self.api_server.close()

    # what faults hit
    def job_name(self, slot):
        return f"job-{slot}"

    def live(self, slot):
        """Return the job of a slot that has not ended and is not being deleted, None without one."""
        job = self.kube.get("heterotpjobs", self.namespace, self.job_name(slot))
        if job is None or job["metadata"].get("deletionTimestamp"):
            return None
        return None if (job.get("status") or {}).get("phase") in ENDED else job

    def pod(self, job, number):
        """Return one of the living pods of the job's current attempt, None without one."""
        pods = self.kube.list("pods", self.namespace)
        attempt = (job.get("status") or {}).get("attempt")
        alive = [
            pod
            for pod in pods
            if pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
            and attempt_of(pod) == attempt
            and not pod["metadata"].get("deletionTimestamp")
            and pod["status"].get("phase") in ("Pending", "Running")
        ]
        return alive[number % len(alive)] if alive else None

    def delete(self, job, how):
        """Delete exactly this job."""
        uid = {"uid": job["metadata"]["uid"]}
        with suppress(KubeError):
            name = job["metadata"]["name"]
            self.kube.delete("heterotpjobs", self.namespace, name, propagationPolicy=how, preconditions=uid)

    # the end
    def settled(self):
        """Return whether every job is where it shall be, at its end, and the status of all else is of its last edit."""
        jobs = self.kube.list("heterotpjobs", self.namespace)
        others = [each for plural in CHANGED for each in self.kube.list(plural, self.namespace)]
        return all((job.get("status") or {}).get("phase") in ENDED for job in jobs) and all(map(is_current, others))

    def clear(self):
        """Delete all jobs, policies and injections."""
        for job in self.kube.list("heterotpjobs", self.namespace):
            self.delete(job, "Background")
        for plural in CHANGED:
            for each in self.kube.list(plural, self.namespace):
                self.kube.delete(plural, self.namespace, each["metadata"]["name"])

    def cleared(self):
        """Return whether nothing is left of any job."""
        left = [each for plural in CHILDREN for each in self.kube.list(plural, self.namespace)]
        return not any(each["metadata"].get("ownerReferences") for each in left)
