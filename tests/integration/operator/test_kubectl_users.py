"""What a person with kubectl sees of our kinds: waits, columns, explanations, refusals; with the real kubectl."""

import subprocess
from contextlib import contextmanager

import pytest
import yaml
from heterotp_api import names
from heterotp_api.crd import KINDS
from support.balanced_job import Run, Thing
from support.gang import Gang, job
from support.kube import until
from support.patience import PATIENCE_SECONDS
from support.places import BIN

pytestmark = pytest.mark.integration
NAMESPACE = "kubectl"


class Kubectl:
    """The real kubectl in the namespace of this file."""

    def __init__(self, kubeconfig):
        self.start = [str(BIN / "kubectl"), "--kubeconfig", str(kubeconfig), "--namespace", NAMESPACE]

    def __call__(self, *arguments, stdin=""):
        done = subprocess.run([*self.start, *arguments], input=stdin, capture_output=True, text=True)
        assert done.returncode == 0, f"kubectl {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, *arguments, stdin=""):
        """Return what kubectl prints of a refusal."""
        done = subprocess.run([*self.start, *arguments], input=stdin, capture_output=True, text=True)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def rows(self, *arguments):
        """Return the rows of `kubectl get`, each a dict of its cells by column."""
        header, *lines = self("get", *arguments).splitlines()
        titles = header.split()
        starts = [header.index(title) for title in titles]
        ends = [*starts[1:], None]
        return [
            {title: line[start:end].strip() for title, start, end in zip(titles, starts, ends, strict=True)}
            for line in lines
        ]

    @contextmanager
    def waiting(self, what, *conditions):
        """Run a `kubectl wait` for each condition while the body makes them come; all must succeed."""
        command = [*self.start, "wait", what, f"--timeout={PATIENCE_SECONDS:.0f}s"]
        waits = {each: subprocess.Popen([*command, f"--for={each}"], stdout=subprocess.PIPE) for each in conditions}
        try:
            yield
            ended = {each: wait.wait(PATIENCE_SECONDS) for each, wait in waits.items()}
        finally:
            for wait in waits.values():
                wait.kill()
                wait.communicate()
        assert ended == dict.fromkeys(conditions, 0)


@pytest.fixture(scope="module")
def kubectl(kubeconfig):
    return Kubectl(kubeconfig)


@pytest.fixture(scope="module")
def operator(operated):
    with operated(NAMESPACE) as operator:
        yield operator


@pytest.fixture
def run(kube, kubeconfig, operator):
    """A function that creates a job of which the test plays kubelets and rank 0."""
    made = []

    def make(name, **options):
        made.append(Run(kube, kubeconfig, NAMESPACE, name, **options))
        return made[-1]

    yield make
    for each in made:
        each.zero.close()
        if each.live():
            each.delete()


# -- kubectl wait ---------------------------------------------------------------------------------------------


def test_wait_from_the_start_of_a_job_to_its_success(kubectl, run):
    good = run("good")
    with kubectl.waiting("htpj/good", *(f"condition={kind}" for kind in ("Created", "PodsReady", "Running"))):
        good.start()
    ends = ("condition=Succeeded", "condition=Running=False", "jsonpath={.status.completionTime}")
    with kubectl.waiting("htpj/good", *ends, "jsonpath={.status.phase}=Succeeded"):
        good.end_all(1)


def test_wait_over_a_restart_to_the_failure(kubectl, run):
    bad = run("bad")
    bad.patch({"runPolicy": {"backoffLimit": 1}})
    bad.start()
    with kubectl.waiting("htpj/bad", "condition=Restarting", "condition=Running=False"):
        bad.end(bad.pods(1)[0], 3)
    with kubectl.waiting("htpj/bad", "condition=Running", "condition=Restarting=False"):
        bad.start(2)
    with kubectl.waiting("htpj/bad", "condition=Failed", "jsonpath={.status.completionTime}"):
        bad.end(bad.pods(2)[0], 3)


def test_wait_for_a_suspended_job_and_for_its_return(kubectl, run):
    paused = run("paused")
    paused.start()
    with kubectl.waiting("htpj/paused", "condition=Suspended", "condition=Running=False"):
        paused.patch({"runPolicy": {"suspend": True}})
    with kubectl.waiting("htpj/paused", "condition=Suspended=False", "condition=Running"):
        paused.patch({"runPolicy": {"suspend": False}})
        paused.start(2)


def test_wait_for_what_happens_to_a_running_job(kubectl, run):
    busy = run("busy", balancing={"policy": {"replaceAfterSeconds": 1}})
    busy.start()
    with kubectl.waiting("htpj/busy", "condition=Straggling", "condition=ReplacementAdvised"):
        busy.zero.slow = {1: 3.94}
    with kubectl.waiting("htpj/busy", "condition=Straggling=False", "condition=ReplacementAdvised=False"):
        busy.zero.slow = {}
    with kubectl.waiting("htpj/busy", "condition=Stalled", "jsonpath={.status.waitingFor}=Iteration"):
        busy.zero.overrides = {"stalledSeconds": 100.0, "stalledBy": [1], "stall": "rank 1 is still computing"}
    with kubectl.waiting("htpj/busy", "condition=Stalled=False"):
        busy.zero.overrides = {}
    template = {"spec": {"containers": [{"name": names.CONTAINER, "image": "another:1"}]}}
    with kubectl.waiting("htpj/busy", "condition=SpecChangePending"):
        groups = [{**group, "template": template} for group in busy.body["spec"]["workerGroups"]]
        busy.patch({"workerGroups": groups})


def test_wait_for_policies_injections_and_a_deletion(kubectl, kube, run):
    run("governed").start()
    with kubectl.waiting("htpj/governed", "jsonpath={.status.balancing.policy}=zero"):
        zero = Thing(kube, NAMESPACE, "BalancingPolicy", "zero", {"selector": {}, "strategy": "ZERO"})
        kubectl("wait", "bpol/zero", "--for=condition=Accepted", "--for=condition=Applied", "--timeout=180s")
    spec = {"jobRef": {"name": "governed"}, "targets": {"ranks": [1]}, "slowdown": 4.0}
    slow = Thing(kube, NAMESPACE, "StragglerInjection", "slow", spec)
    waited = ("condition=Accepted", "jsonpath={.status.phase}=Injecting")
    kubectl("wait", "sinj/slow", *(f"--for={each}" for each in waited), "--timeout=180s")
    (row,) = kubectl.rows("sinj")
    assert (row["STATE"], row["JOB"], row["SLOWDOWN"], row["MEASURED"]) == ("Injecting", "governed", "4", "3.88")
    (row,) = kubectl.rows("bpol")
    assert (row["STRATEGY"], row["SELECTED"], row["APPLIED"], row["REASON"]) == ("ZERO", "1", "1", "InForce")
    slow.delete()
    zero.delete()
    with kubectl.waiting("htpj/governed", "delete"):
        kubectl("delete", "htpj/governed", "--wait=false")


# -- kubectl get ----------------------------------------------------------------------------------------------


def test_columns_of_a_job_from_waiting_to_its_end(kubectl, run):
    seen = run("seen")
    row = lambda *wide: kubectl.rows("htpj", "seen", *wide)[0]  # noqa: E731
    seen.attempt(1)
    seen.unschedulable(seen.pods(1)[0], "0/2 nodes are available")
    until(row, lambda: row()["WAITING"] == "Unschedulable")
    seen.start()
    until(row, lambda: row()["ITER/S"] == "10")
    assert {**row(), "AGE": ""} == {
        **{"NAME": "seen", "STATE": "Running", "WAITING": "", "RANKS": "3", "ITER/S": "10", "SLOWEST": ""},
        **{"RESTARTS": "0", "AGE": ""},
    }
    seen.zero.slow = {2: 3.94}
    until(row, lambda: row()["SLOWEST"] == "rank 2 (3.9x)")
    (slow,) = (rank for rank in seen.status["ranks"] if rank["slowdown"] == 3.94)
    assert slow["rank"] == 2
    wide = row("-o", "wide")
    assert (wide["POLICY"], wide["STRATEGY"], wide["QUEUE"]) == ("default", "AUTO", "")
    assert int(wide["ITERATION"]) > 0
    seen.suspend()
    assert (row()["STATE"], row()["ITER/S"], row()["SLOWEST"]) == ("Suspended", "", "")


# -- kubectl explain ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.short)
def test_explain_describes_the_kind_and_all_that_it_holds(kubectl, kind):
    told = kubectl("explain", kind.short)
    assert kind.model.__doc__.split("\n")[0].rstrip(".") in " ".join(told.split())
    for field in ("apiVersion", "kind", "metadata", "spec", "status"):
        assert f"  {field}\t" in told
    for path in (kind.short, f"{kind.short}.spec", f"{kind.short}.status", f"{kind.short}.status.conditions"):
        assert "<no description>" not in kubectl("explain", path)


# -- refusals -------------------------------------------------------------------------------------------------


def test_scale_is_refused_and_the_degree_cannot_be_edited_alone(kubectl, run):
    fixed = run("fixed")
    fixed.start()
    scale = ("scale", "htpj/fixed", "--replicas=2")
    patch = ("patch", "htpj/fixed", "--type=merge", "-p", '{"spec":{"tensorParallelDegree":2}}')
    for words in (kubectl.refused(*scale), kubectl.refused(*patch)):
        assert 'HeteroTPJob "fixed" is invalid' in words
        assert "tensorParallelDegree must equal the sum of pods x processesPerPod over workerGroups" in words
        assert "tensorParallelDegree cannot change while the job runs; set runPolicy.suspend first" in words
    assert kubectl.rows("htpj", "fixed")[0]["RANKS"] == "3"
    fixed.suspend()
    assert "must equal the sum" in kubectl.refused(*scale)


EDITS = {
    "managedBy": ({"runPolicy": {"managedBy": "another.io/controller"}}, "runPolicy.managedBy cannot change"),
    "model": ({"training": {"model": {"preset": "vit-1b"}}}, "training.model cannot change while the job runs"),
    "type": ({"runPolicy": {"suspend": "yes"}}, "spec.runPolicy.suspend: Invalid value"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_that_cannot_be_is_refused_by_field(kubectl, run, name):
    spec, words = EDITS[name]
    run(f"edited-{name.lower()}")
    patch = yaml.safe_dump({"spec": spec})
    assert words in kubectl.refused("patch", f"htpj/edited-{name.lower()}", "--type=merge", "-p", patch)


def test_a_field_that_is_not_there_is_refused_by_name(kubectl, operator):
    body = job("replicated") | {"spec": {**job("replicated")["spec"], "replicas": 2}}
    assert 'unknown field "spec.replicas"' in kubectl.refused("apply", "-f", "-", stdin=yaml.safe_dump(body))


# -- whose fields are whose -----------------------------------------------------------------------------------


def managers(body, subresource=""):
    """Return who wrote an object, or its subresource."""
    entries = body["metadata"].get("managedFields", ())
    return {each["manager"] for each in entries if each.get("subresource", "") == subresource}


def test_all_that_the_operator_writes_names_its_managers(kube, run):
    named = run("named")
    named.start()
    Thing(kube, NAMESPACE, "BalancingPolicy", "named", {"selector": {}, "strategy": "ZERO"}).shows(appliedJobs=1)
    spec = {"jobRef": {"name": "named"}, "targets": {"ranks": [1]}, "slowdown": 4.0}
    Thing(kube, NAMESPACE, "StragglerInjection", "named", spec).shows(phase="Injecting")
    owned = [*named.children(), *kube.list("leases", NAMESPACE), *kube.list("secrets", NAMESPACE)]
    owned += [event for event in kube.list("events", NAMESPACE) if event["involvedObject"]["name"] == "named"]
    assert {each["metadata"]["name"] for each in owned} > {"named-gang", "named-control", "named-a-0-1"}
    assert {each["metadata"]["name"]: managers(each) for each in owned} == {
        each["metadata"]["name"]: {"heterotp-operator"} for each in owned
    }
    for plural in ("heterotpjobs", "balancingpolicies", "stragglerinjections"):
        body = kube.get(plural, NAMESPACE, "named")
        assert managers(body, "status") <= {"heterotp-status", "heterotp-attempt"}
        assert not [each for each in managers(body) if each.startswith("heterotp")]  # the spec is the user's alone
        assert "heterotp-status" in managers(body, "status")
        kube.delete(plural, NAMESPACE, "named")


def test_a_job_that_runs_is_applied_again_without_a_conflict(kubectl, kube, operator):
    text = yaml.safe_dump(job("again"))
    apply = ("apply", "--server-side", "--field-manager=ci", "-f", "-")
    kubectl(*apply, stdin=text)
    again = Gang(kube, NAMESPACE, kube.get("heterotpjobs", NAMESPACE, "again"), created=True)
    again.run_all(1)
    kubectl(*apply, stdin=text)
    assert again.status["attempt"] == 1
    again.delete()


# -- deletion -------------------------------------------------------------------------------------------------
MANY = 100


def test_a_hundred_jobs_go_and_leave_nothing(kubectl, kube, operator):
    everything = ("heterotpjobs", "pods", "services", "configmaps")
    label = {"metadata": {"labels": {"many": "yes"}}}
    for number in range(MANY):
        kube.create("heterotpjobs", NAMESPACE, job(f"many-{number}", **label))

    def left():
        return [
            body["metadata"]
            for plural in everything
            for body in kube.list(plural, NAMESPACE)
            if body["metadata"]["name"].startswith("many-")
        ]

    until(lambda: f"all are made: {len(left())}", lambda: len(left()) == MANY * 5, every=0.5)
    assert [each["name"] for each in left() if each.get("finalizers")] == []
    kubectl("delete", "htpj", "-l", "many=yes", "--wait=false")
    until(lambda: f"nothing is left: {[each['name'] for each in left()]}", lambda: not left(), every=0.5)
    until("their metrics are gone", lambda: 'heterotpjob="many-' not in operator.fetch("/metrics"))
