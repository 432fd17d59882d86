"""`helm test` on the chart, installed where restricted pods alone are accepted: green, its rights are gone afterwards.

Jobs of all e2e tests run in such namespaces, too (tests/support/cluster_job.py).

What it finds wrong is tested without a cluster (tests/unit/chart/test_chart_smoke.py): it takes two minutes to give up.
"""

import pytest
from support.kube import KubeError

pytestmark = pytest.mark.e2e
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def test_helm_test_is_green_and_leaves_no_rights(release, kube):
    system = next(iter(release.pods().values()))["metadata"]["namespace"]
    labels = kube.get("namespaces", None, system)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    output = release.helm("test", "heterotp", "--logs", "--timeout", "240s")
    assert "Phase:          Succeeded" in output
    assert "ok: the API server takes a HeteroTPJob and refuses a wrong one" in output
    assert "ok: every operator shows its metrics, one leads, and it lists jobs" in output
    assert kube.get("serviceaccounts", system, "heterotp-test") is None
    for plural in ("roles", "rolebindings"):
        with pytest.raises(KubeError, match=r"^404: "):
            kube.request("GET", f"{RBAC}/namespaces/{system}/{plural}/heterotp-test")
    assert kube.get("pods", system, "heterotp-test")["status"]["phase"] == "Succeeded"  # its log stays
    assert kube.get("heterotpjobs", system, "helm-test") is None
