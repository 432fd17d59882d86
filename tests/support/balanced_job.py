"""A job whose ranks run as far as an operator can see, and the policies and injections on it, on a real API server."""

import json

from heterotp_api import names
from support.gang import Gang, job
from support.kube import Kube, until
from support.patience import PATIENCE_SECONDS
from support.rank_zero import RankZero


class Run(Gang):
    """A job whose ranks run, at least as far as the operator can see."""

    def __init__(self, kube, kubeconfig, namespace, name, pods=(("a", 1), ("b", 2)), labels=None, **spec):
        self.zero, self.kubeconfig = RankZero(sum(count for _, count in pods)), kubeconfig
        body = job(name, pods, metadata={"labels": labels or {"case": name}}, spec=spec)
        body["spec"]["metrics"] = {"port": self.zero.port}
        super().__init__(kube, namespace, body)

    def start(self, attempt=1):
        self.zero.attempt = attempt
        self.zero.follow(Kube(self.kubeconfig), self.namespace, self.name)
        return self.run_all(attempt, podIP="127.0.0.1")

    @property
    def control(self):
        configmap = self.kube.get("configmaps", self.namespace, names.control_name(self.name))
        try:
            return json.loads(configmap["data"][names.CONTROL_FILE]) if configmap else {}
        except ValueError:  # a test damaged it
            return {}

    def follows(self, seconds=PATIENCE_SECONDS, **balancing):
        """Wait until the ranks follow this, and the status shows it."""
        until(
            lambda: f"{self.name} follows {balancing}: {self.control} {self.status.get('balancing')}",
            lambda: self.status.get("balancing", {}).items() >= balancing.items() and self._current(),
            seconds,
        )

    def _current(self):
        balancing = self.status["balancing"]
        return balancing["generation"] == balancing.get("appliedGeneration") == self.control["generation"]


def custom(kind, name, spec):
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


class Thing:
    """A policy or an injection on the API server."""

    def __init__(self, kube, namespace, kind, name, spec):
        self.kube, self.namespace, self.name = kube, namespace, name
        self.plural = "balancingpolicies" if kind == "BalancingPolicy" else "stragglerinjections"
        kube.create(self.plural, self.namespace, custom(kind, name, spec))

    @property
    def status(self):
        return self.kube.get(self.plural, self.namespace, self.name).get("status") or {}

    def edit(self, **spec):
        self.kube.patch(self.plural, self.namespace, self.name, {"spec": spec})

    def delete(self):
        self.kube.delete(self.plural, self.namespace, self.name)

    def condition(self, kind):
        found = next((c for c in self.status.get("conditions", ()) if c["type"] == kind), {})
        return found.get("status"), found.get("reason"), found.get("message")

    def shows(self, seconds=PATIENCE_SECONDS, **wanted):
        until(lambda: f"status of {self.name}: wanted {wanted}: {self.status}", lambda: self._shows(wanted), seconds)
        return self.status

    def _shows(self, wanted):
        return all(self.status.get(key) == value for key, value in wanted.items())
