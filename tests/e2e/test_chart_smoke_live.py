"""`helm test` on the installed chart: green, and its rights are gone afterwards."""

import pytest

pytestmark = pytest.mark.e2e


def test_helm_test_is_green_and_leaves_no_rights(release, kube):
    system = next(iter(release.pods().values()))["metadata"]["namespace"]
    said = release.helm("test", "heterotp", "--logs", "--timeout", "240s")
    assert "Phase:          Succeeded" in said
    assert "ok: the API server takes a HeteroTPJob and refuses a wrong one" in said
    assert "ok: every operator shows its metrics, and one leads" in said
    assert kube.get("serviceaccounts", system, "heterotp-test") is None
    assert kube.get("pods", system, "heterotp-test")["status"]["phase"] == "Succeeded"  # its log stays
    assert kube.get("heterotpjobs", system, "helm-test") is None
