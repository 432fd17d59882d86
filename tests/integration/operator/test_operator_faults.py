"""Between operator and API server: lost, cut and broken watches, refusals, slow writes; two operators."""

import itertools
import os
import signal
from urllib.error import URLError

import pytest
from support.gang import Gang, job
from support.kube import make_namespace, until

pytestmark = pytest.mark.integration
NAMESPACE = "faults"
QUICK_LEASE = {
    "HETEROTP_LEASE_SECONDS": "6",
    "HETEROTP_LEASE_RENEW_DEADLINE_SECONDS": "4",
    "HETEROTP_LEASE_RETRY_SECONDS": "0.3",
}
numbers = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def namespace(kube):
    make_namespace(kube, NAMESPACE)


@pytest.fixture
def operator(proxy, new_operator, tmp_path):
    """An operator behind the proxy."""
    operator = new_operator(NAMESPACE, kubeconfig=proxy.kubeconfig(tmp_path / "kubeconfig"), **QUICK_LEASE).start()
    yield operator
    if operator.process.poll() is None:
        operator.kill()


@pytest.fixture
def gang(kube):
    """A function that creates a job; what is left of it is removed afterwards."""
    made = []

    def make(**run_policy):
        made.append(Gang(kube, NAMESPACE, job(f"f{next(numbers)}", **run_policy)))
        return made[-1]

    yield make
    for each in made:
        if each.live():
            each.delete()


def ends_well(gang, attempt=1):
    gang.end_all(attempt)
    gang.phase("Succeeded")
    assert (gang.status["attempt"], gang.status["restarts"]) == (attempt, attempt - 1)


def test_a_pod_that_vanished_while_the_watch_was_expired_is_missed_by_the_next_list(operator, proxy, gang, kube):
    running = gang()
    running.run_all(1)
    proxy.mute.add("pods")
    # nor by a list that the start of the watches still asks for
    proxy.fault = lambda method, path: 503 if method == "GET" and "/pods?" in path and "watch=" not in path else None
    kube.delete("pods", NAMESPACE, f"{running.name}-a-1-1", gracePeriodSeconds=0)
    gang().attempt(1)  # the operator is up and about, and knows nothing of the deletion
    assert running.status["phase"] == "Running"
    proxy.fault = None
    proxy.mute.clear()
    proxy.end_watches("pods", 410)
    running.run_all(2)
    ends_well(running, 2)


def test_a_watch_of_pods_that_ends_with_a_server_error_is_opened_again(operator, proxy, gang):
    running = gang()
    running.run_all(1)
    proxy.end_watches("pods", 500)
    ends_well(running)
    assert operator.process.poll() is None, operator.log.read_text()


def test_a_watch_that_ends_with_a_server_error_ends_the_process_and_the_next_one_goes_on(operator, proxy, gang):
    running = gang()
    running.run_all(1)
    proxy.end_watches("services", 500)
    until("the operator leaves", lambda: operator.process.poll() is not None)
    assert operator.process.returncode != 0, operator.log.read_text()
    running.end_all(1)
    operator.start()
    ends_well(running)


def test_a_cut_watch_is_opened_again(operator, proxy, gang):
    running = gang()
    running.run_all(1)
    for plural in ("pods", "heterotpjobs", "services", "configmaps"):
        proxy.end_watches(plural)
    ends_well(running)
    assert operator.process.poll() is None, operator.log.read_text()
    reconnects = 'heterotp_operator_watch_reconnects_total{resource="pods"}'
    until("the reconnect is counted", lambda: reconnects in operator.fetch("/metrics"))


@pytest.mark.parametrize("code", [401, 409, 422, 429, 500])
def test_a_refused_status_is_written_again(operator, proxy, gang, code):
    refused = []

    def first_two(method, path):
        if method == "PATCH" and path.partition("?")[0].endswith("/status") and len(refused) < 2:
            refused.append(path)
            return code
        return None

    proxy.fault = first_two
    running = gang()
    running.run_all(1)
    assert len(refused) == 2
    ends_well(running)
    assert operator.process.poll() is None, operator.log.read_text()


def test_a_lost_race_for_the_attempt_makes_no_second_gang(operator, proxy, gang):
    running = gang()
    running.run_all(1)
    refused = []

    def conflict(method, path):
        if f"/{running.name}/status" in path and method == "PATCH" and len(refused) < 3:
            refused.append(path)
            return 409
        return None

    proxy.fault = conflict
    running.end(running.pods(1)[0], 1)
    running.run_all(2)
    assert len(refused) == 3
    ends_well(running, 2)


def test_a_token_that_is_refused_for_a_moment_is_read_again(operator, proxy, gang):
    running = gang()
    running.run_all(1)
    refused = []

    def unauthorized(method, path):
        if method == "GET" and "/pods" in path and len(refused) < 1:
            refused.append(path)
            return 401
        return None

    proxy.fault = unauthorized
    proxy.end_watches("pods")
    until("a watch was refused", lambda: refused)
    ends_well(running)
    assert (running.status["attempt"], running.status["restarts"]) == (1, 0)


def test_slow_writes_of_the_status_hold_nothing_up_for_ever(operator, proxy, gang):
    proxy.delay = 0.7
    several = [gang() for _ in range(4)]
    for each in several:
        each.attempt(1)
    for each in several:
        each.run_all(1)
    for each in several:
        ends_well(each)
    assert [(each.status["attempt"], each.status["restarts"]) for each in several] == [(1, 0)] * 4


def leader(kube):
    lease = kube.get("leases", NAMESPACE, "heterotp-operator")
    return ((lease or {}).get("spec") or {}).get("holderIdentity", "")


def answered(operator):
    """Return the metrics, nothing while the server does not answer yet."""
    try:
        return operator.fetch("/metrics")
    except URLError:
        return ""


def test_of_two_operators_one_works_and_a_frozen_one_never_writes_again(new_operator, gang, kube):
    first = new_operator(NAMESPACE, HETEROTP_IDENTITY="first", **QUICK_LEASE).start()
    until("the first leads", lambda: leader(kube) == "first")
    second = new_operator(NAMESPACE, HETEROTP_IDENTITY="second", **QUICK_LEASE).start()
    running = gang()
    running.run_all(1)
    assert "heterotp_operator_leader 1.0" in first.fetch("/metrics")
    until("the second waits", lambda: "heterotp_operator_leader 0.0" in answered(second))

    os.kill(first.process.pid, signal.SIGSTOP)
    until("the second leads", lambda: leader(kube) == "second")
    running.end(running.pods(1)[1], 1)
    running.run_all(2)
    os.kill(first.process.pid, signal.SIGCONT)
    until("the first leaves", lambda: first.process.poll() is not None)
    assert first.process.returncode == 1
    ends_well(running, 2)
    assert second.stop() == 0, second.log.read_text()
    assert leader(kube) == ""
