"""Gangs run on across versions of the operator: what the first version wrote, this one takes over, and the reverse."""

import itertools

import pytest
from heterotp_api import names
from support.gang import Gang
from support.kube import make_namespace, until
from support.older_gangs import OLDER, OlderGang

pytestmark = pytest.mark.integration
numbers = itertools.count()
COUNTERS = ("attempt", "restarts")


@pytest.fixture
def namespace(kube):
    return make_namespace(kube, f"upgrade-{next(numbers)}")


def reconciled(operator, gang):
    """Wait until this operator has written the status of a job: its workers then look at nothing older."""
    marker = {"status": {"observedGeneration": 0}}
    gang.kube.patch("heterotpjobs", gang.namespace, gang.name, marker, "status")
    generation = gang.live()["metadata"]["generation"]
    until("the job is reconciled", lambda: gang.status.get("observedGeneration") == generation)
    assert operator.process.poll() is None, operator.log.read_text()


@pytest.mark.parametrize("name", OLDER)
def test_a_running_gang_keeps_pods_and_attempt_over_an_upgrade_and_a_rollback(kube, new_operator, namespace, name):
    gang = OlderGang(kube, namespace, OLDER[name])
    uids, counters = gang.uids(), {counter: gang.status[counter] for counter in COUNTERS}
    for _ in ("upgrade", "upgrade after a rollback"):
        operator = new_operator(namespace).start()
        reconciled(operator, gang)
        assert gang.phase("Running").uids() == uids
        assert {counter: gang.status[counter] for counter in COUNTERS} == counters
        assert operator.stop() == 0, operator.log.read_text()
        gang.write()  # as the first version does after a rollback
    operator = new_operator(namespace).start()
    gang.end_all(1)
    gang.phase("Succeeded")
    assert operator.stop() == 0, operator.log.read_text()


@pytest.mark.parametrize("name", OLDER)
def test_a_gang_that_this_version_makes_has_the_hashes_of_the_first_one(kube, new_operator, namespace, name):
    """The first version leaves a gang alone whose pods have the hashes that it computes itself."""
    older = OLDER[name]
    with_hash = next(child["body"] for child in older["children"] if child["plural"] == "pods")
    gang = Gang(kube, namespace, older["job"])
    operator = new_operator(namespace).start()
    made = gang.attempt(1)
    assert {pod["metadata"]["labels"][names.LABEL_TEMPLATE_HASH] for pod in made} == {
        with_hash["metadata"]["labels"][names.LABEL_TEMPLATE_HASH]
    }
    assert operator.stop() == 0, operator.log.read_text()
