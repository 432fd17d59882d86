"""The operator is killed after every single write that a policy and an injection cause: the end is always the same."""

import os
import signal

import pytest
from heterotp_api import names
from support.balanced_job import Run, Thing
from support.kube import make_namespace, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
NAMESPACE = "balancing-crashpoints"
MOST_WRITES = 40


@pytest.fixture
def operator(kube, proxy, new_operator, tmp_path):
    make_namespace(kube, NAMESPACE)
    return new_operator(NAMESPACE, kubeconfig=proxy.kubeconfig(tmp_path / "kubeconfig"))


class Life:
    """A running job that gets a policy and an injection."""

    def __init__(self, kube, kubeconfig, name):
        self.kube, self.name, self.things = kube, name, []
        self.run = Run(kube, kubeconfig, NAMESPACE, name).start()
        self.run.follows(policy="default", generation=1)
        self.pods = self._uids()

    def _uids(self):
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.run.pods()}

    def change(self):
        """Apply both."""
        selector = {"selector": {"matchLabels": {"case": self.name}}, "strategy": "ZERO"}
        slow = {"jobRef": {"name": self.name}, "targets": {"ranks": [1]}, "slowdown": 4.0}
        self.things = [
            Thing(self.kube, NAMESPACE, "BalancingPolicy", f"p-{self.name}", selector),
            Thing(self.kube, NAMESPACE, "StragglerInjection", f"i-{self.name}", slow),
        ]

    def settled(self):
        """Return whether all objects have their expected last state."""
        policy, injection = (thing.status for thing in self.things)
        status = self.run.status
        balancing = status.get("balancing", {})
        return (
            (policy.get("selectedJobs"), policy.get("appliedJobs")) == (1, 1)
            and (injection.get("phase"), injection.get("measured")) == ("Injecting", 3.88)
            and (balancing.get("policy"), balancing.get("generation"))
            == (policy_of(self), balancing.get("appliedGeneration"))
            and self.run.condition("Straggling")["status"] == "True"
        )

    def end(self):
        """Return what must be the same whatever happened on the way."""
        control, status = self.run.control, self.run.status
        (first,) = (pod for pod in self.run.pods() if pod["metadata"]["labels"][names.LABEL_FIRST_RANK] == "0")
        annotated = first["metadata"]["annotations"][names.ANNOTATION_CONTROL]
        return {
            "strategy": control["balancing"]["strategy"],
            "injections": [(each["ranks"], each["slowdown"]) for each in control["injections"]],
            "one number": len({str(control["generation"]), annotated, str(status["balancing"]["generation"])}),
            "pods are the same": self._uids() == self.pods,
            "attempt": status["attempt"],
        }

    def close(self):
        for thing in self.things:
            thing.delete()
        self.run.zero.close()
        self.run.delete()


def policy_of(life):
    return life.things[0].name


EXPECTED = {
    "strategy": "ZERO",
    "injections": [([1], 4.0)],
    "one number": 1,
    "pods are the same": True,
    "attempt": 1,
}


# kinds of writes that a change causes, and how many of each at least: document, touch, three statuses, events
KINDS = {
    "-control": 1,
    "/pods/": 1,
    "/heterotpjobs/": 1,
    "/balancingpolicies/": 1,
    "/stragglerinjections/": 1,
    "/events": 1,
}


def test_every_crash_point_leads_to_the_same_end(kube, kubeconfig, operator, proxy):
    """Two objects change at the same time, so that writes come in no fixed order: each kind is walked by itself."""
    operator.start()
    struck = dict.fromkeys(KINDS, 0)
    for place, kind in enumerate(KINDS):
        for number in range(1, MOST_WRITES):
            life = Life(kube, kubeconfig, f"c{place}-{number}")
            died = killed_after(number, kind, life, operator, proxy)
            ended_well(life, f"killed after write {number} of {kind}")
            life.close()
            if not died:
                break
            struck[kind] += 1
        else:
            pytest.fail(f"a change has {MOST_WRITES} writes of {kind} or more: {proxy.writes}")
    assert all(struck[kind] >= least for kind, least in KINDS.items()), struck
    operator.stop()


def ended_well(life, case):
    """Wait until all that a life leaves behind is as expected: statuses and the pod's note come one after the other."""
    until(lambda: f"{case}: {life.end()}", lambda: life.end() == EXPECTED)


def killed_after(number, kind, life, operator, proxy):
    """Change the job and kill the operator after this write of a kind; return whether there was such a write."""
    pid = operator.process.pid
    proxy.arm(number, lambda: os.kill(pid, signal.SIGKILL), kind)
    life.change()
    what = lambda: f"write {number} of {kind} or the end: {proxy.writes} {[t.status for t in life.things]}"  # noqa: E731
    until(what, lambda: operator.process.poll() is not None or life.settled())
    died = proxy.disarm()
    if died:
        operator._ended()
        operator.start()
        until(what, life.settled)
    return died
