"""An API server without nodes on which the chart is installed by the real helm."""

import subprocess

import yaml
from support.kube import Kube
from support.places import BIN

SYSTEM, RELEASE = "system", "heterotp"


class HelmCluster:
    """An API server and the programs that speak with it."""

    def __init__(self, kubeconfig):
        self.kubeconfig, self.kube = kubeconfig, Kube(kubeconfig)

    def run(self, program, *arguments, stdin=""):
        command = [BIN / program, *arguments, "--kubeconfig", self.kubeconfig]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True)
        assert done.returncode == 0, f"{program} {arguments[0]}: {done.stderr}"
        return done.stdout

    def release(self, verb, chart, values):
        """Install or upgrade the release."""
        self.run("helm", verb, RELEASE, chart, "-n", SYSTEM, "-f", "-", stdin=yaml.safe_dump(values))

    def deployment(self):
        return self.kube.request("GET", f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{RELEASE}-operator")

    def environment(self):
        """Return the operator's variables as the Deployment sets them; those of its pod are left out."""
        (container,) = self.deployment()["spec"]["template"]["spec"]["containers"]
        return {each["name"]: each["value"] for each in container["env"] if "value" in each}

    def kubeconfig_of_the_operator(self, path):
        """Write a kubeconfig with the rights of the release's service account, and return its path."""
        account = self.deployment()["spec"]["template"]["spec"]["serviceAccountName"]
        asked = self.kube.path("serviceaccounts", SYSTEM, account, "token")
        token = self.kube.request("POST", asked, {"spec": {}})["status"]["token"]
        document = yaml.safe_load(self.kubeconfig.read_text())
        document["users"][0]["user"] = {"token": token}
        path.write_text(yaml.safe_dump(document))
        return path
