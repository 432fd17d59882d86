"""The chart, installed on a cluster."""

import json
import subprocess

from support.cluster_job import logs
from support.kube import MERGE, KubeError, until
from support.patience import PATIENCE_SECONDS
from support.places import BIN, ROOT

SYSTEM = "heterotp-system"
RELEASE = "heterotp"
OPERATORS = "app.kubernetes.io/component=operator"


def remove_at_end(guardian, kubeconfig):
    """Let the guardian remove the release, its CRDs and the namespaces of tests."""
    kubectl = [str(BIN / "kubectl"), "--kubeconfig", kubeconfig, "delete", "--ignore-not-found", "--wait=false"]
    guardian.at_end([*kubectl, "namespace", "--selector", "heterotp.io/e2e"])
    guardian.at_end([str(BIN / "helm"), "--kubeconfig", kubeconfig, "-n", SYSTEM, "uninstall", RELEASE])
    guardian.at_end([*kubectl, "namespace", SYSTEM])
    plurals = ("heterotpjobs", "balancingpolicies", "stragglerinjections")
    guardian.at_end([*kubectl, "crd", *(f"{plural}.heterotp.io" for plural in plurals)])


class Release:
    """The installed chart."""

    def __init__(self, kube, kubeconfig, *values):
        self.kube, self.kubeconfig = kube, kubeconfig
        self.values = ",".join(["image.tag=dev,trainerImage.tag=dev", *values])

    def helm(self, *arguments):
        """Run helm in the namespace of the release; return its output."""
        command = [BIN / "helm", "--kubeconfig", self.kubeconfig, "--namespace", SYSTEM, *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"helm {arguments[0]}: {done.stdout}\n{done.stderr}\n{self.log()}"
        return done.stdout

    def install(self):
        """Install the chart and wait until an operator is ready and leads."""
        self.make_namespace()
        often = {"HETEROTP_POLL_SECONDS": "1", "HETEROTP_INJECTION_LEASE_SECONDS": "10"}
        extra = [{"name": name, "value": value} for name, value in often.items()]
        self.helm(
            *("upgrade", "--install", RELEASE, str(ROOT / "charts" / "heterotp"), "--create-namespace"),
            *("--set", self.values, "--set-json", f"extraEnv={json.dumps(extra)}"),
            *("--wait", "--timeout", f"{PATIENCE_SECONDS:.0f}s"),
        )
        until("an operator leads", self.leader, every=0.2)

    def make_namespace(self):
        """Make the namespace of the release, in which restricted pods alone are accepted."""
        labels = {"metadata": {"name": SYSTEM, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
        try:
            self.kube.create("namespaces", None, labels)
        except KubeError as error:
            if error.code != 409:
                raise
            self.kube.patch("namespaces", None, SYSTEM, labels)

    def scale(self, replicas):
        """Set the number of operators and wait until they run."""
        path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{RELEASE}-operator"
        self.kube.request("PATCH", path, {"spec": {"replicas": replicas}}, MERGE)
        until(lambda: f"{replicas} operators: {list(self.pods())}", lambda: len(self.pods()) == replicas, every=0.2)
        if replicas:
            until("an operator leads", self.leader, every=0.2)

    def uninstall(self):
        self.helm("uninstall", RELEASE, "--wait", "--timeout", f"{PATIENCE_SECONDS:.0f}s")
        until(lambda: f"no operator pods: {list(self.pods())}", lambda: not self.pods(), every=0.2)

    def pods(self):
        return {pod["metadata"]["name"]: pod for pod in self.kube.list("pods", SYSTEM, OPERATORS)}

    def leader(self):
        """Return the name of the operator pod that holds the Lease; None when no pod does."""
        lease = self.kube.get("leases", SYSTEM, f"{RELEASE}-operator")
        holder = ((lease or {}).get("spec") or {}).get("holderIdentity") or ""
        return next((name for name in self.pods() if holder.startswith(name)), None)

    def log(self):
        return "\n".join(f"operator {name}:\n{logs(self.kube, SYSTEM, name, 40)}" for name in self.pods())
