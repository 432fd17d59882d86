"""Gangs that make no progress on a real API server: the operator begins the next attempt and says why."""

import pytest
from chaos.faults.ranks import silent
from heterotp_api import names
from support.gang import Gang, job
from support.kube import make_namespace, until
from support.operator_process import OperatorProcess
from support.places import ROOT
from support.rank_zero import RankZero

pytestmark = pytest.mark.integration
NAMESPACE = "hung"
DEADLINE = 10  # seconds: the shortest that a job may have
LONG_AGO = 1000.0


class Impatient(OperatorProcess):
    command = ("-P", str(ROOT / "tests" / "support" / "impatient_operator.py"))


@pytest.fixture(scope="module")
def operator(guardian, kube, kubeconfig, tmp_path_factory):
    make_namespace(kube, NAMESPACE)
    log = tmp_path_factory.mktemp("hung") / "operator.log"
    operator = Impatient(guardian, kubeconfig, NAMESPACE, log).start()
    yield operator
    assert operator.process.poll() is None, log.read_text()
    assert operator.stop() == 0, log.read_text()


@pytest.fixture
def train(kube, operator):
    """A function that creates a job whose ranks train; its attribute `zero` is what answers as rank 0."""
    made = []

    def make(name):
        zero = RankZero(2)
        spec = {"metrics": {"port": zero.port}}
        made.append(Gang(kube, NAMESPACE, job(name, spec=spec, progressDeadlineSeconds=DEADLINE)))
        made[-1].zero = zero
        made[-1].run_all(1, podIP="127.0.0.1")
        until("rank 0 is seen", lambda: made[-1].status.get("training", {}).get("iteration"))
        return made[-1]

    yield make
    for each in made:
        each.zero.close()
        each.delete()


def restarted(gang, kube, words):
    """Wait for the second attempt; return the events of the job that say why."""
    gang.attempt(2)
    restarting = gang.condition("Restarting")
    assert (restarting["status"], restarting["reason"]) == ("True", "NoProgress")
    assert words in restarting["message"]
    assert (gang.status["attempt"], gang.status["restarts"]) == (2, 1)
    found = lambda: [  # noqa: E731
        event
        for event in kube.list("events", NAMESPACE)
        if event["involvedObject"]["name"] == gang.name and words in event["message"]
    ]
    return until("an event says why", found)


def test_a_gang_that_reports_the_same_iteration_for_ever_begins_its_next_attempt(train, kube, operator):
    stuck, sound = train("stuck"), train("sound")
    stuck.zero.overrides = {"iteration": 7, "idleSeconds": LONG_AGO}
    (event,) = restarted(stuck, kube, "after iteration 7")
    assert (event["type"], event["reason"]) == ("Warning", "GangRestarted")
    assert event["message"].startswith("attempt 2 follows attempt 1: no iteration for ")
    labels = [pod["metadata"]["labels"][names.LABEL_ATTEMPT] for pod in stuck.pods()]
    assert labels == ["2", "2"], "no pod of the gang that hung is left"
    assert f'rank_restarts_total{{namespace="{NAMESPACE}",reason="NoProgress"}} 1.0' in operator.fetch("/metrics")
    assert sound.status["attempt"] == 1, "one that makes progress goes on"


def test_a_gang_whose_ranks_name_the_one_they_wait_for_is_restarted_with_its_name(train, kube):
    waiting = train("waiting")
    waiting.zero.overrides = {"stalledSeconds": LONG_AGO, "stalledBy": [1], "stall": "rank 1 is still computing"}
    (event,) = restarted(waiting, kube, "the others wait for rank 1; rank 0 reports: rank 1 is still computing")
    assert (event["type"], event["reason"]) == ("Warning", "GangRestarted")


def test_two_gangs_that_are_silent_at_the_same_time_are_both_restarted(train, kube):
    """Each is the only other sign of the network that the other one has."""
    both = [train("silent-a"), train("silent-b")]
    for each in both:
        each.zero.attack = silent
    told = [restarted(each, kube, "rank 0 has not answered for ") for each in both]
    assert [{event["reason"] for event in events} for events in told] == [{"GangRestarted"}] * 2
