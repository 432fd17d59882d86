"""The operator process on a real API server; the test plays scheduler, kubelet and ranks."""

import json
import os
import signal

import pytest
from heterotp_api import names
from support.gang import Gang, groups_of, job
from support.kube import until

pytestmark = pytest.mark.integration
NAMESPACE = "lifecycle"


@pytest.fixture(scope="module")
def operator(operated):
    with operated(NAMESPACE) as operator:
        yield operator


@pytest.fixture
def gang(kube, operator, request):
    """A function that creates a job; what is left of it is removed afterwards."""
    made = []

    def make(name, *args, **kwargs):
        made.append(Gang(kube, NAMESPACE, job(name, *args, **kwargs)))
        return made[-1]

    yield make
    for each in made:
        if each.live():
            each.delete()


def messages(kube, name):
    """Return the messages of the events of a job."""
    return [event["message"] for event in kube.list("events", NAMESPACE) if event["involvedObject"]["name"] == name]


def test_a_job_gets_service_control_document_and_pods_and_succeeds(gang, kube):
    happy = gang("happy", (("fast", 1), ("slow", 2)))
    pods = happy.attempt(1)
    assert sorted(pod["metadata"]["name"] for pod in pods) == ["happy-fast-0-1", "happy-slow-0-1", "happy-slow-1-1"]
    assert {pod["metadata"]["labels"][names.LABEL_FIRST_RANK] for pod in pods} == {"0", "1", "2"}
    service = kube.get("services", NAMESPACE, names.service_name("happy"))
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert service["spec"]["selector"][names.LABEL_ATTEMPT] == "1"
    control = kube.get("configmaps", NAMESPACE, names.control_name("happy"))
    assert json.loads(control["data"][names.CONTROL_FILE])["schemaVersion"] == 1
    for child in happy.children():
        assert child["metadata"]["ownerReferences"][0]["uid"] == happy.body["metadata"]["uid"]
    happy.run_all(1)
    assert happy.status["startTime"]
    assert happy.status["observedGeneration"] == 1
    assert [g["ready"] for g in happy.status["workerGroups"]] == [1, 2]
    happy.end_all(1)
    happy.phase("Succeeded")
    assert happy.status["completionTime"]
    assert happy.condition("Succeeded")["status"] == "True"


def test_trainer_pods_are_restricted_and_get_no_token(gang):
    for pod in gang("restricted").attempt(1):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["restartPolicy"] == "Never"
        assert spec["securityContext"]["runAsNonRoot"] is True
        container = next(c for c in spec["containers"] if c["name"] == names.CONTAINER)
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert not any("serviceAccountToken" in str(volume) for volume in spec["volumes"])


def test_a_failed_rank_restarts_the_whole_gang(gang, kube):
    failing = gang("failing")
    failing.run_all(1)
    failing.end(failing.pods(1)[1], 1)
    pods = failing.attempt(2)
    assert {pod["metadata"]["labels"][names.LABEL_ATTEMPT] for pod in pods} == {"2"}
    service = kube.get("services", NAMESPACE, names.service_name("failing"))
    assert service["spec"]["selector"][names.LABEL_ATTEMPT] == "2"
    failing.run_all(2)
    assert (failing.status["attempt"], failing.status["restarts"]) == (2, 1)


def test_out_of_memory_is_named_as_the_cause(gang, kube):
    victim = gang("oom")
    victim.run_all(1)
    first, second = victim.pods(1)
    victim.end(first, names.EXIT_PEER_LOST)
    victim.end(second, 137, "OOMKilled")
    victim.attempt(2)
    shown = messages(kube, "oom")
    assert any("OOMKilled" in message for message in shown), shown


def test_the_limit_of_restarts_fails_the_job(gang):
    limited = gang("limited", backoffLimit=1)
    for attempt in (1, 2):
        limited.run_all(attempt)
        limited.end(limited.pods(attempt)[0], 1)
    limited.phase("Failed")
    assert limited.condition("Failed")["status"] == "True"
    assert "exit" in limited.condition("Failed")["message"]
    assert (limited.status["attempt"], limited.status["restarts"]) == (2, 1)


def test_a_failure_rule_fails_the_job_at_once(gang):
    ruled = gang("ruled", failureRules=[{"onExitCodes": [names.EXIT_BAD_INPUT], "action": "FailJob"}])
    ruled.run_all(1)
    ruled.end(ruled.pods(1)[0], names.EXIT_BAD_INPUT)
    ruled.phase("Failed")
    assert ruled.status.get("restarts", 0) == 0


def test_suspend_removes_the_pods_and_resume_brings_a_gang_back(gang):
    paused = gang("paused")
    paused.run_all(1)
    paused.suspend()
    paused.patch({"runPolicy": {"suspend": False}})
    pods = until("a new gang", lambda: len(paused.pods()) == 2 and paused.pods())
    for pod in pods:
        paused.run(pod)
    paused.phase("Running")
    assert paused.status.get("restarts", 0) == 0


def test_ports_and_groups_changed_while_suspended_hold_for_the_next_gang(gang, kube):
    moved = gang("moved")
    moved.run_all(1)
    moved.suspend()
    ports = {"rendezvous": {"port": 29777}, "metrics": {"port": 9555}}
    moved.patch({"tensorParallelDegree": 3, "workerGroups": groups_of((("b", 3),)), **ports})
    moved.patch({"runPolicy": {"suspend": False}})
    moved.degree = 3
    moved.run_all(2)
    assert sorted(pod["metadata"]["name"] for pod in moved.pods()) == ["moved-b-0-2", "moved-b-1-2", "moved-b-2-2"]
    service = kube.get("services", NAMESPACE, names.service_name("moved"))
    assert {port["name"]: port["port"] for port in service["spec"]["ports"]} == {"rendezvous": 29777, "metrics": 9555}


def test_a_suspended_job_makes_nothing(gang):
    asleep = gang("asleep", suspend=True)
    asleep.phase("Suspended")
    assert asleep.pods() == []


def test_a_control_document_deleted_by_hand_comes_back(gang, kube):
    healed = gang("healed")
    healed.run_all(1)
    old = kube.get("configmaps", NAMESPACE, names.control_name("healed"))
    kube.delete("configmaps", NAMESPACE, names.control_name("healed"))
    new = until("it is back", lambda: kube.get("configmaps", NAMESPACE, names.control_name("healed")))
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert new["data"] == old["data"]
    kube.delete("services", NAMESPACE, names.service_name("healed"))
    until("the service is back", lambda: kube.get("services", NAMESPACE, names.service_name("healed")))
    assert healed.status["attempt"] == 1


def test_a_service_edited_by_hand_is_put_right(gang, kube):
    mended = gang("mended")
    mended.run_all(1)
    name = names.service_name("mended")

    def shown():
        live = kube.get("services", NAMESPACE, name)
        ports = [(port["name"], port["port"]) for port in live["spec"]["ports"]]
        return live["metadata"]["labels"], live["spec"]["selector"], ports

    before = shown()
    for damage in (
        {"spec": {"selector": {"team": "mine"}}},
        {"spec": {"ports": [{"name": "mine", "port": 1}]}},
        {"metadata": {"labels": {names.LABEL_JOB: "mine"}}},
        {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}},  # the operator's watch sees it no longer
    ):
        kube.patch("services", NAMESPACE, name, damage)
        until(lambda damage=damage: f"as before {damage}: {shown()}", lambda: shown() == before)
    assert mended.status["attempt"] == 1


def test_a_pod_deleted_by_hand_restarts_the_gang(gang, kube):
    robbed = gang("robbed")
    robbed.run_all(1)
    name = robbed.pods(1)[0]["metadata"]["name"]
    kube.delete("pods", NAMESPACE, name, gracePeriodSeconds=0)
    robbed.attempt(2)
    robbed.run_all(2)
    assert (robbed.status["attempt"], robbed.status["restarts"]) == (2, 1)
    # the operator saw it terminate, or only that it is gone: both name it
    assert any(f"pod {name} " in message for message in messages(kube, "robbed"))


def test_a_pod_on_a_lost_node_is_forced_after_its_grace(gang, kube):
    lost = gang("lost")
    first, second = lost.attempt(1)
    lost.bind(first, "gone-with-the-wind")
    for pod in (first, second):
        lost.run(pod)
    lost.phase("Running")
    kube.delete("pods", NAMESPACE, first["metadata"]["name"], gracePeriodSeconds=1)
    lost.waits_for("PodsTerminating")
    assert first["metadata"]["name"] in lost.condition("Restarting")["message"]
    lost.attempt(2)  # no kubelet is there to remove it


def expired(job, waited_for):
    """Wait until the job failed by its deadline to run, and its status shows what it was waiting for."""
    job.phase("Failed")
    failed = job.condition("Failed")
    assert failed["reason"] == "PreRunningDeadlineExceeded"
    assert failed["message"].endswith(f"; waited for: {waited_for}"), failed
    until(lambda: f"its pods are gone: {job.names()}", lambda: not job.pods())


def test_an_image_that_cannot_be_pulled_is_shown_and_its_deadline_acts(gang):
    missing = gang("missing", preRunningDeadlineSeconds=5)
    pod = missing.attempt(1)[0]
    missing.wait_state(pod, "ImagePullBackOff", 'Back-off pulling image "heterotp/trainer:test"')
    missing.waits_for("ImagePull")
    expired(missing, "ImagePull")


def test_a_pod_that_fits_nowhere_is_shown_and_its_deadline_acts(gang):
    huge = gang("huge", preRunningDeadlineSeconds=5)
    huge.unschedulable(huge.attempt(1)[0], "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    huge.waits_for("Unschedulable")
    expired(huge, "Unschedulable")


def test_ranks_that_never_meet_are_shown_and_their_deadline_acts(gang):
    hanging = gang("hanging", preRunningDeadlineSeconds=5)
    hanging.run_all(1)
    hanging.waits_for("Rendezvous")
    expired(hanging, "Rendezvous")


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"imagePullPolicy": "Sometimes"}, ["imagePullPolicy", '"Sometimes"']),
        ({"tty": "yes"}, ["tty", "string"]),  # 400: it does not even parse
    ],
    ids=["422", "400"],
)
def test_a_bad_template_fails_with_the_servers_own_words(gang, container, words):
    bad = gang(f"template-{words[0].lower()}", suspend=True)
    bad.patch({"workerGroups": groups_of((("a", 2),), **container), "runPolicy": {"suspend": False}})
    bad.phase("Failed")
    condition = bad.condition("Failed")
    assert condition["reason"] == "InvalidPodTemplate"
    assert all(word in condition["message"] for word in ["workerGroups a: template: ", *words]), condition
    assert bad.pods() == []


def test_a_quota_is_waited_for(gang, kube):
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    kube.create("resourcequotas", NAMESPACE, quota)
    until("the quota counts", lambda: kube.get("resourcequotas", NAMESPACE, "none").get("status", {}).get("hard"))
    try:
        poor = gang("poor")
        poor.waits_for("Quota")
        assert "exceeded quota: none" in poor.condition("Created")["message"]
    finally:
        kube.delete("resourcequotas", NAMESPACE, "none")
    poor.attempt(1)
    until(lambda: f"it was made: {poor.status}", lambda: poor.condition("Created")["status"] == "True")


@pytest.mark.parametrize("provider", ["volcano", "coscheduling"])
def test_a_gang_scheduler_that_is_not_installed_is_named(gang, provider):
    lone = gang(provider, gang={"provider": provider})
    lone.waits_for("Creation")
    created = lone.condition("Created")
    assert (created["status"], created["reason"]) == ("False", "GangSchedulerMissing")
    assert "PodGroup: 404 page not found (runPolicy.gang.provider" in created["message"]
    assert lone.pods() == []


def test_a_name_that_is_taken_is_said_and_nothing_is_taken_over(gang, kube):
    first = gang("twin", pods=(("x-y", 1),))
    first.attempt(1)
    second = gang("twin-x", pods=(("y", 1),))  # its pod would have the same name
    second.waits_for("Creation")
    assert 'pods "twin-x-y-0-1" already exists and is not owned by this job' in second.condition("Created")["message"]
    first.delete()
    second.attempt(1)


def test_a_finished_job_goes_after_its_time(gang, kube):
    brief = gang("brief", ttlSecondsAfterFinished=1)
    brief.run_all(1)
    brief.end_all(1)
    until("it is gone", lambda: brief.live() is None)
    assert "every rank ended with exit code 0" in messages(kube, "brief")  # it went after its end, not before


def test_a_deadline_ends_the_job(gang):
    late = gang("late", activeDeadlineSeconds=3)
    late.run_all(1)
    late.phase("Failed")
    assert late.condition("Failed")["reason"] == "DeadlineExceeded"


def test_deleting_the_job_removes_everything(gang, operator):
    gone = gang("gone")
    gone.run_all(1)
    assert len(gone.children()) == 4
    gone.delete()
    # the garbage collector learns of a new kind within 30 s
    until(lambda: f"no children: {gone.names()}", lambda: gone.live() is None and not gone.names(), 120)
    until("its metrics are gone", lambda: 'heterotpjob="gone"' not in operator.fetch("/metrics"))


def test_a_job_of_another_manager_is_left_alone(gang):
    foreign = gang("foreign", managedBy="kueue.x-k8s.io/multikueue")
    gang("witness").attempt(1)  # the operator is at work
    assert foreign.children() == []
    assert foreign.status == {}


def test_the_same_name_again_is_a_new_job(gang, kube):
    """Once the garbage collector has taken the pods of the first."""
    first = gang("phoenix")
    first.run_all(1)
    first.delete()
    until("it is gone", lambda: first.live() is None)
    second = gang("phoenix")
    second.run_all(1)
    assert (second.status["attempt"], second.status["restarts"]) == (1, 0)


@pytest.fixture
def no_garbage_collector(kubeconfig):
    """The controller manager stands still during the test."""
    pid = int((kubeconfig.parent / "pid" / "kcm").read_text())
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


def test_the_same_name_again_needs_no_garbage_collector(gang, kube, no_garbage_collector):
    """It misses the end of a job when it loses its watch, and another job of the name is there when it lists again."""
    first = gang("lazarus")
    first.run_all(1)
    first.delete()
    until("it is gone", lambda: first.live() is None)
    second = gang("lazarus")
    second.run_all(1)
    owners = {child["metadata"]["ownerReferences"][0]["uid"] for child in second.children()}
    assert owners == {second.body["metadata"]["uid"]}
    assert (second.status["attempt"], second.status["restarts"]) == (1, 0)


def test_no_trace_of_kopf_on_any_object(gang, kube):
    clean = gang("clean")
    clean.run_all(1)
    clean.end_all(1)
    clean.phase("Succeeded")
    for each in [clean.live(), *clean.children()]:
        assert "finalizers" not in each["metadata"]
        assert not any("kopf" in name for name in each["metadata"].get("annotations", {}))
        assert not any("kopf" in field["manager"] for field in each["metadata"]["managedFields"])


def test_metrics_and_health(gang, operator):
    gang("measured").run_all(1)
    text = until(
        "the job's phase is shown",
        lambda: (
            (t := operator.fetch("/metrics"))
            and 'job_status_phase{heterotpjob="measured",namespace="lifecycle",phase="Running"} 1.0' in t
            and t
        ),
    )
    assert "heterotp_operator_leader 1.0" in text
    assert 'heterotp_operator_reconcile_total{kind="HeteroTPJob",result="success"}' in text
    assert 'heterotp_operator_api_requests_total{code="201",resource="pods",verb="create"}' in text
    assert operator.fetch("/healthz") == "ok"
