"""Parts of chaos runs that decide: what the simulated kubelet does with a pod, what a hostile rank 0 answers."""

import io
from contextlib import nullcontext

import pytest
from chaos.faults.operators import matches
from chaos.faults.ranks import FIXED, fuzzed
from chaos.faults.registry import BY_KIND
from chaos.kubelet import step_of
from heterotp_operator.poll_answer import understood
from support.kube import KubeError


def pod(phase="Running", node="node-a", deleting=False, ready="True"):
    metadata = {"name": "p"} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {})
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase, "conditions": conditions}}


def step(one, others=(), mark=(), stuck=None, lost=(), done=False):
    return step_of(one, [one, *others], mark, stuck, set(lost), done)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (step(pod("Pending", None)), ("bind",)),
        (step(pod("Pending")), ("run",)),
        (step(pod()), ()),
        (step(pod(ready="False")), ("run",)),
        (step(pod(), done=True), ("end", 0)),
        (step(pod(), [pod("Failed")]), ("end", 75)),
        (step(pod(), mark=("end", 137, "OOMKilled")), ("end", 137, "OOMKilled")),
        (step(pod("Pending", None), stuck="Unschedulable")[:1], ("unschedulable",)),
        (step(pod("Pending"), stuck="ImagePull")[:1], ("wait_state",)),
        (step(pod(deleting=True)), ("end", 143)),
        (step(pod("Failed", deleting=True)), ("remove",)),
        (step(pod("Pending", deleting=True)), ("remove",)),
        (step(pod("Succeeded"), done=True), ()),
        (step(pod(deleting=True), lost=["node-a"]), ()),
    ],
)
def test_what_the_kubelet_does(found, expected):
    assert found == expected


@pytest.mark.parametrize("name", [name for name in FIXED if name != "nothing"])
def test_a_hostile_answer_is_of_no_use(name):
    assert understood(FIXED[name]()).failure == "BadAnswer"


class Zero:
    def status(self):
        ranks = [{"rank": 0, "tpRank": 0, "device": "cpu", "slowdown": 1.0}]
        return {"job": "j", "attempt": 1, "state": "running", "startedAt": 1.0, "iteration": 4, "ranks": ranks}


def test_fuzzed_answers_repeat_by_their_seed_and_raise_nothing():
    usable = 0
    for seed in range(300):
        answers = []
        for _ in range(2):
            stream = io.BytesIO()
            fuzzed(Zero(), seed)(stream)
            answers.append(stream.getvalue())
        assert answers[0] == answers[1]
        usable += understood(answers[0]).status is not None
    assert 0 < usable < 300  # both kinds


@pytest.mark.parametrize(
    ("which", "method", "path", "expected"),
    [
        ("any", "GET", "/api/v1/pods", True),
        ("any", "GET", "/api/v1/pods?watch=true", False),
        ("read", "POST", "/api/v1/pods", False),
        ("write", "PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", False),
        ("lease", "PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", True),
        ("status", "PATCH", "/apis/heterotp.io/v1alpha1/namespaces/n/heterotpjobs/j/status?force=true", True),
    ],
)
def test_requests_are_told_apart(which, method, path, expected):
    assert matches(which, method, path) is expected


@pytest.mark.parametrize(("code", "again"), [(404, False), (401, True), (500, True)])
def test_a_hoard_that_the_api_server_does_not_delete_is_deleted_later(code, again):
    """The driver calls `end` again after any error."""

    class Refusing:
        namespace, kube = "chaos", property(lambda self: self)

        def delete(self, *arguments):
            raise KubeError(code, {})

    fault = BY_KIND["large jobs stored"]({"number": 1, "seconds": 5})
    with pytest.raises(KubeError) if again else nullcontext():
        fault.end(Refusing())
