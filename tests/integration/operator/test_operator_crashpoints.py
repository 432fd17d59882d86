"""The operator is killed after every single API write of a job's life, in turn: the end is always the same."""

import os
import signal
from contextlib import suppress

import pytest
from heterotp_api import names
from support.gang import Gang, job
from support.kube import make_namespace, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]
NAMESPACE = "crashpoints"
MOST_WRITES = 100


class Life:
    """Plays one job to its end: attempt 1 runs and loses a rank, attempt 2 succeeds. Remembers every pod it saw."""

    def __init__(self, kube, name):
        self.gang = Gang(kube, NAMESPACE, job(name))
        self.seen = {}  # pod name -> its uids

    def play(self):
        """Push the pods one step on; return whether the job has ended."""
        pods = self.gang.pods()
        for pod in pods:
            self.seen.setdefault(pod["metadata"]["name"], set()).add(pod["metadata"]["uid"])
        self._step([p for p in pods if self._of(p, "1")], self._fail_one)
        self._step([p for p in pods if self._of(p, "2")], self._succeed)
        return self.gang.status.get("phase") in ("Succeeded", "Failed")

    def _of(self, pod, attempt):
        return pod["metadata"]["labels"][names.LABEL_ATTEMPT] == attempt and not pod["metadata"].get(
            "deletionTimestamp"
        )

    def _step(self, pods, finish):
        if len(pods) < self.gang.degree:
            return
        phases = {pod["status"]["phase"] for pod in pods}
        for pod in pods:
            if pod["status"]["phase"] == "Pending":
                self.gang.run(pod)
        if phases == {"Running"}:
            finish(pods)

    def _fail_one(self, pods):
        self.gang.end(pods[1], 1)

    def _succeed(self, pods):
        for pod in pods:
            self.gang.end(pod, 0)

    def end(self):
        """Return what must be the same whatever happened on the way."""
        live = self.gang.live()
        uid = live["metadata"]["uid"]
        children = self.gang.children()
        return {
            "phase": live["status"]["phase"],
            "attempt": live["status"]["attempt"],
            "restarts": live["status"]["restarts"],
            # an absent condition means the same as a False one; Created means that a gang was seen complete,
            # and one that ended while the operator was down never was
            "conditions": {c["type"] for c in live["status"]["conditions"] if c["status"] == "True"} - {"Created"},
            "workerGroups": live["status"]["workerGroups"],
            "children": sorted(child["metadata"]["name"].removeprefix(self.gang.name) for child in children),
            "foreign": [c for c in children if c["metadata"]["ownerReferences"][0]["uid"] != uid],
            "pods": sorted(name.removeprefix(self.gang.name) for name in self.seen),
            "made twice": [name for name, uids in self.seen.items() if len(uids) > 1],
        }


@pytest.fixture
def operator(kube, proxy, new_operator, tmp_path):
    make_namespace(kube, NAMESPACE)
    return new_operator(
        NAMESPACE, kubeconfig=proxy.kubeconfig(tmp_path / "kubeconfig"), HETEROTP_API_TIMEOUT_SECONDS="5"
    )


def finished(life, operator):
    """Play to the end and wait until the status has settled; return the end."""

    def played():
        assert operator.process.poll() is None, operator.log.read_text()[-4000:]
        return life.play()

    until(lambda: f"{life.gang.name} ends: {life.gang.status} {life.seen}", played, 90)
    until(
        lambda: f"attempt 1 is cleaned up: {life.gang.names()}",
        lambda: not any(life._of(pod, "1") for pod in life.gang.pods()),
    )
    end = life.end()
    life.gang.delete()
    return end


def test_every_crash_point_leads_to_the_same_end(kube, operator, proxy):
    operator.start()
    proxy.arm(None, None)
    expected = finished(Life(kube, "c0"), operator)
    assert (expected["phase"], expected["attempt"], expected["restarts"]) == ("Succeeded", 2, 1)
    assert (expected["foreign"], expected["made twice"]) == ([], [])
    assert expected["pods"] == ["-a-0-1", "-a-0-2", "-a-1-1", "-a-1-2"]
    for number in range(1, MOST_WRITES):
        if not killed_after(number, kube, operator, proxy, expected):
            break
    else:
        pytest.fail(f"a job's life has {MOST_WRITES} writes or more: {proxy.writes}")
    assert number > 10, f"only {number - 1} writes were walked"
    # the garbage collector learns of a new kind within 30 s
    until(lambda: f"nothing leaks: {leaked(kube)}", lambda: not leaked(kube), 120)
    operator.stop()


def leaked(kube):
    """Return the names of what is left of any job."""
    kinds = ("heterotpjobs", "pods", "services", "configmaps")
    left = [(kind, o) for kind in kinds for o in kube.list(kind, NAMESPACE)]
    return [o["metadata"]["name"] for _, o in left if o["metadata"]["name"] != "kube-root-ca.crt"]


def killed_after(number, kube, operator, proxy, expected):
    """Live one life in which the operator dies after this write; return False when the life was shorter."""
    pid = operator.process.pid
    proxy.arm(number, lambda: os.kill(pid, signal.SIGKILL))
    life = Life(kube, f"c{number}")
    until(
        lambda: f"write {number} or the end: {proxy.writes} {life.gang.status}",
        lambda: operator.process.poll() is not None or life.play(),
        90,
    )
    wait_for_late_strike(operator)
    died = proxy.disarm()
    if died:
        operator._ended()
        operator.start()
    struck = proxy.writes[number - 1 : number]
    assert finished(life, operator) == expected, f"killed after write {number}: {struck}"
    return died


def wait_for_late_strike(operator):
    """Give writes that follow the end of the job (events, clean-up) a moment to be the fatal one."""
    with suppress(AssertionError):
        until("", lambda: operator.process.poll() is not None, 2)
