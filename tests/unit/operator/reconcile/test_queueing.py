"""A job that Kueue admits: its Workload, pods after admission, eviction, suspension, and what Kueue is told."""

import copy
from dataclasses import replace

import pytest
from heterotp_api import names, reasons
from heterotp_operator.reconcile.kueue.admission import KueueRecords
from heterotp_operator.reconcile.observed import Refusal
from heterotp_operator.reconcile.plan import plan
from hypothesis import given, settings
from hypothesis import strategies as st
from support.admitting_kueue import admit, set_condition
from support.reconcile_world import World, manifest

QUEUED = {"provider": "kueue", "queue": "team"}
A100 = {"nodeLabels": {"gpu": "a100"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}


def queued(template=None, gang=(), **spec):
    return World(manifest(template=template, runPolicy={"gang": {**QUEUED, **dict(gang)}}, **spec))


def workload_conditions(world):
    return {each["type"]: each["status"] for each in world.objects["Workload"]["status"].get("conditions", ())}


def test_a_job_waits_without_pods_until_its_workload_is_admitted():
    world = queued()
    world.settle()
    workload = world.objects["Workload"]
    assert [(each["name"], each["count"]) for each in workload["spec"]["podSets"]] == [("a", 1), ("b", 2)]
    assert (workload["metadata"]["name"], workload["spec"]["queueName"]) == ("job", "team")
    assert workload["metadata"]["ownerReferences"][0]["uid"] == "uid-job"
    assert (world.pods, world.status["waitingFor"], world.phase) == ({}, "Admission", "Pending")
    assert "startTime" not in world.status
    admit(world)
    world.settle()
    assert len(world.pods) == 3
    assert "Admitted" in world.true


def test_kueues_reason_is_the_jobs():
    world = queued()
    world.settle()
    set_condition(world, "QuotaReserved", False, "Inadmissible")
    world.settle()
    told = world.condition("Admitted")
    assert (told["status"], told["reason"], told["message"]) == ("False", "Inadmissible", "QuotaReserved False")


def test_pods_get_the_place_of_their_flavor_and_none_of_kueues_labels():
    labels = {"kueue.x-k8s.io/queue-name": "other", "mine": "kept"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": names.CONTAINER}]}}
    world = queued(template)
    world.flavors = {"fast": A100}
    world.settle()
    admit(world, "fast")
    world.settle()
    for pod in world.pods.values():
        assert pod["spec"]["nodeSelector"] == {"gpu": "a100"}
        assert pod["spec"]["tolerations"] == A100["tolerations"]
        assert "schedulingGates" not in pod["spec"]
        assert "kueue.x-k8s.io/queue-name" not in pod["metadata"]["labels"]
        assert pod["metadata"]["labels"]["mine"] == "kept"
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == pod["metadata"]["labels"][names.LABEL_GROUP]


def test_a_topology_is_requested_and_its_pods_wait_for_their_node():
    template = {
        "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}},
        "spec": {"containers": [{"name": names.CONTAINER}]},
    }
    world = queued(template)
    world.settle()
    request = world.objects["Workload"]["spec"]["podSets"][0]["topologyRequest"]
    assert request == {"required": "rack", "podIndexLabel": names.LABEL_INDEX}
    admit(world)
    for each in world.objects["Workload"]["status"]["admission"]["podSetAssignments"]:
        each["topologyAssignment"] = True
    world.settle()
    for pod in world.pods.values():
        assert pod["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == "job"


def test_fewer_pods_are_a_smaller_gang():
    job = manifest(runPolicy={"gang": QUEUED})
    job["spec"]["workerGroups"][1]["minPods"] = 1
    world = World(job)
    world.settle()
    assert world.objects["Workload"]["spec"]["podSets"][1]["minCount"] == 1
    admit(world, b=1)
    world.settle()
    assert len(world.pods) == 2
    env = {e["name"]: e["value"] for e in next(iter(world.pods.values()))["spec"]["containers"][0]["env"]}
    assert env[names.Env.WORLD_SIZE] == "2"


def test_an_evicted_gang_ends_before_its_quota_is_given_back_and_returns_uncounted():
    world = queued()
    world.settle()
    admit(world)
    world.settle()
    first = set(world.pods)
    set_condition(world, "Evicted", True, "Preempted")
    world.settle()
    assert all(pod["metadata"].get("deletionTimestamp") for pod in world.pods.values())
    assert workload_conditions(world)["QuotaReserved"] == "True"
    world.pods.clear()
    world.settle()
    assert workload_conditions(world) | {"PodsReady": ""} == {
        **{"QuotaReserved": "False", "Admitted": "False", "Evicted": "True", "Requeued": "True", "PodsReady": ""}
    }
    assert world.objects["Workload"]["status"]["admission"] is None
    assert (world.phase, world.status["waitingFor"]) == ("Pending", "Admission")
    admit(world)
    world.settle()
    assert (len(world.pods), world.status["attempt"], world.status["restarts"]) == (3, 2, 0)
    assert not first & set(world.pods)


def test_a_suspended_job_has_no_workload_and_may_change_its_queue():
    world = queued()
    world.settle()
    admit(world)
    world.settle()
    world.job["spec"]["runPolicy"]["suspend"] = True
    world.settle()
    assert "Workload" in world.objects  # pods still end
    world.pods.clear()
    world.settle()
    assert "Workload" not in world.objects
    world.job["spec"]["runPolicy"] = {"gang": {**QUEUED, "queue": "other"}}
    world.settle()
    assert world.objects["Workload"]["spec"]["queueName"] == "other"
    assert world.pods == {}


def test_what_an_administrator_deactivated_stays_so_while_the_job_is_suspended():
    world = queued()
    world.settle()
    world.objects["Workload"]["spec"]["active"] = False
    world.job["spec"]["runPolicy"]["suspend"] = True
    world.settle()
    assert world.objects["Workload"]["spec"]["active"] is False


def test_a_job_that_waits_may_change_its_template():
    world = queued()
    world.settle()
    world.job["spec"]["workerGroups"][0]["template"]["spec"]["nodeSelector"] = {"zone": "a"}
    world.settle()
    assert world.objects["Workload"]["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] == {"zone": "a"}


def test_kueue_is_told_of_ready_ranks_and_of_the_end():
    world = queued()
    world.settle()
    admit(world)
    world.settle()
    for pod in world.pods.values():
        pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    world.settle()
    assert workload_conditions(world)["PodsReady"] == "True"
    for pod in world.pods.values():
        pod["status"] = {"phase": "Succeeded"}
    world.settle()
    assert (world.phase, workload_conditions(world)["Finished"]) == ("Succeeded", "True")


def test_the_end_of_a_suspended_or_ended_job_does_not_wait_for_kueue():
    world = queued()
    world.settle()
    admit(world)
    world.settle()
    world.refuse["Workload"] = Refusal(500, "InternalError", "failed calling webhook")
    world.job["spec"]["runPolicy"]["suspend"] = True
    world.reconcile()
    assert all(pod["metadata"].get("deletionTimestamp") for pod in world.pods.values())
    world.pods.clear()
    world.reconcile()
    world.reconcile()
    assert "Suspended" in world.true


def test_an_absent_kueue_is_named_and_asked_again():
    world = queued()
    world.refuse["Workload"] = Refusal(404, "NotFound", "the server could not find the requested resource")
    world.reconcile()
    decision = world.reconcile()
    assert world.condition("Admitted")["reason"] == "KueueUnavailable"
    assert world.condition("Created")["reason"] == "GangSchedulerMissing"
    assert decision.requeue_after is not None
    world.refuse.clear()
    world.settle()
    assert "Workload" in world.objects


def test_a_pod_group_of_an_older_operator_goes_on_as_one():
    world = queued(gang={"admission": "PodGroup"})
    world.settle()
    pods = copy.deepcopy(world.pods)
    assert len(pods) == 3
    world.job["spec"]["runPolicy"]["gang"]["admission"] = "Workload"  # the default of a newer CRD
    world.settle()
    assert (world.pods, "Workload" in world.objects) == (pods, False)


STEPS = ("admit", "evict", "end pods", "ready", "suspend", "resume", "fail", "remove", "queue", "switch")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=14))
def test_in_any_history_pods_are_only_made_while_the_workload_is_admitted(steps):
    world = queued()
    world.settle()
    for step in steps:
        before = set(world.pods)
        play(world, step)
        permitted = (
            {"Admitted"} <= {k for k, v in workload_conditions(world).items() if v == "True"}
            if ("Workload" in world.objects)
            else False
        )
        world.settle()
        assert permitted or not set(world.pods) - before, step
        assert world.status.get("restarts", 0) <= steps.count("fail")
    world.job["spec"]["runPolicy"]["suspend"] = True
    world.settle()
    world.pods.clear()
    world.settle()
    left = world.objects.get("Workload")
    assert left is None or left["spec"].get("active") is False or workload_conditions(world).get("Finished") == "True"


def play(world, step):
    play_kueue(world, step, world.objects.get("Workload"))
    play_job(world, step)


def play_kueue(world, step, workload):
    match step:
        case "admit" if workload and not workload["status"].get("admission") and workload["spec"].get("active", True):
            admit(world)
        case "evict" if workload and workload["status"].get("admission"):
            set_condition(world, "Evicted", True, "Preempted")
        case "remove":
            world.objects.pop("Workload", None)
        case "switch" if workload:
            workload["spec"]["active"] = not workload["spec"].get("active", True)


def play_job(world, step):
    match step:
        case "end pods":
            world.pods = {n: pod for n, pod in world.pods.items() if not pod["metadata"].get("deletionTimestamp")}
        case "ready" | "fail":
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            world.pods = {
                n: pod | {"status": ready if step == "ready" else {"phase": "Failed"}} for n, pod in world.pods.items()
            }
        case "suspend" | "resume":
            world.job["spec"]["runPolicy"]["suspend"] = step == "suspend"
        case "queue" if world.job["spec"]["runPolicy"].get("suspend"):
            world.job["spec"]["runPolicy"]["gang"] = {**QUEUED, "queue": "other"}


def test_a_template_that_is_none_is_refused_before_kueue_sees_it():
    world = queued({"spec": {"containers": ["trainer"]}})
    world.settle()
    assert (world.phase, "Workload" in world.objects) == ("Failed", False)


def test_without_the_right_the_job_says_what_to_set():
    world = queued()
    world.settings = type(world.settings)(kueue="off")
    world.settle()
    assert world.condition("Admitted")["reason"] == "KueueOff"
    assert (world.pods, world.objects.get("Workload")) == ({}, None)


def running():
    world = queued()
    world.settle()
    admit(world)
    world.settle()
    world.run()
    world.settle()
    return world


AWAY = KueueRecords(missing=(reasons.KUEUE_UNAVAILABLE, "conversion webhook failed"), unknown=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda world: setattr(world, "records", AWAY),
        lambda world: setattr(world, "settings", replace(world.settings, kueue="off")),
    ],
    ids=["Workloads cannot be read", "the operator may not use Kueue any more"],
)
def test_a_gang_that_runs_goes_on_while_kueue_cannot_be_asked(change):
    world = running()
    pods = set(world.pods)
    change(world)
    world.settle()
    assert (set(world.pods), world.status["attempt"], world.phase) == (pods, 1, "Running")
    assert not any(pod["metadata"].get("deletionTimestamp") for pod in world.pods.values())


def test_a_workload_that_is_really_gone_ends_the_gang():
    world = running()
    del world.objects["Workload"]
    world.settle()
    assert world.status["attempt"] == 2


def test_a_job_that_becomes_invalid_gives_its_quota_back():
    world = running()
    world.job["spec"]["tensorParallelDegree"] = 99
    world.settle()
    assert "Workload" in world.objects, "its pods still end"
    world.pods.clear()
    world.settle()
    assert (world.phase, "Workload" in world.objects) == ("Failed", False)


@pytest.mark.parametrize("gang", [{"provider": "none"}, {**QUEUED, "admission": "PodGroup"}], ids=["none", "PodGroup"])
def test_a_job_that_leaves_the_queue_while_its_pods_end_gives_its_quota_back(gang):
    world = running()
    world.job["spec"]["runPolicy"] = {"gang": QUEUED, "suspend": True}
    world.settle()
    world.job["spec"]["runPolicy"] = {"gang": gang}
    world.settle()
    assert "Workload" in world.objects, "pods of the attempt before still hold it"
    world.pods.clear()
    world.settle()
    assert "Workload" not in world.objects


def test_a_job_that_has_ended_does_not_ask_for_its_class_again():
    world = running()
    for name in tuple(world.pods):
        world.end(name, 0, "Completed")
    world.settle()
    world.records = KueueRecords(world.objects.get("Workload"), missing=(reasons.PRIORITY_CLASS_MISSING, "gone"))
    assert world.phase == "Succeeded"
    assert plan(world.observe()).requeue_after is None


def test_a_refused_template_is_told_before_the_wait_for_kueue():
    world = queued()
    seen = replace(world.observe(), refusals={"a": Refusal(403, "Forbidden", "exceeded quota")})
    status = plan(seen).status
    (shown,) = [each for each in status["conditions"] if each["type"] == "Admitted"]
    assert (status["waitingFor"], shown["reason"]) == ("Quota", reasons.REFUSED_FORBIDDEN)
