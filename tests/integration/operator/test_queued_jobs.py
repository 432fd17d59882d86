"""Jobs of provider kueue on a real API server with Kueue's CRDs; the test plays Kueue's manager and the kubelets."""

import pytest
from support.gang import Gang, job
from support.kube import make_namespace, until
from support.played_kueue import SINCE, admit, conditions, set_status
from support.published_crds import published

pytestmark = pytest.mark.integration
KUEUE = {"HETEROTP_KUEUE": "on"}


def queued(name):
    return job(name, gang={"provider": "kueue", "queue": "team"})


def install_kueue(kube):
    for crd in published("gang_kinds"):
        if crd["spec"]["group"] == "kueue.x-k8s.io" and crd["spec"]["names"]["kind"] in ("Workload", "ResourceFlavor"):
            kube.create("customresourcedefinitions", None, crd)


def test_kueue_that_comes_later_is_used_and_an_evicted_gang_returns(kube, new_operator):
    namespace = "queued"
    make_namespace(kube, namespace)
    early = new_operator(namespace, **KUEUE).start()
    gang = Gang(kube, namespace, queued("first"))
    until("Kueue is missed", lambda: gang.condition("Admitted").get("reason") == "KueueUnavailable")
    install_kueue(kube)
    until("a Workload", lambda: kube.get("workloads", namespace, "first"))
    assert gang.status["waitingFor"] == "Admission"
    admit(kube, namespace, "first")
    gang.attempt(1)
    assert early.stop() == 0, early.log.read_text()

    late = new_operator(namespace, **KUEUE).start()  # this one watches Workloads
    gang.run_all(1)
    until("Kueue knows", lambda: conditions(kube, namespace, "first").get("PodsReady", {}).get("status") == "True")
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", **SINCE, "message": "for another"}
    set_status(kube, namespace, "first", {}, [evicted])
    until("quota is back", lambda: conditions(kube, namespace, "first")["QuotaReserved"]["status"] == "False")
    assert conditions(kube, namespace, "first")["Requeued"]["status"] == "True"
    assert not kube.get("workloads", namespace, "first")["status"].get("admission")
    admit(kube, namespace, "first")
    gang.attempt(2)
    assert gang.status["restarts"] == 0
    gang.run_all(2)
    gang.end_all(2)
    gang.phase("Succeeded")
    until("Kueue knows the end", lambda: "Finished" in conditions(kube, namespace, "first"))
    assert late.stop() == 0, late.log.read_text()
