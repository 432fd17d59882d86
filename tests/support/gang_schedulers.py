"""The real gang schedulers as processes beside an API server: their programs, CRDs and what makes them run there."""

import subprocess
from pathlib import Path

import yaml
from support.kube import KubeError, until
from support.places import BIN, FILES_OF_GANG_SCHEDULERS
from support.ports import free_port

COSCHEDULING_CONFIG = {  # a second scheduler, as its chart names it
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    "profiles": [
        {
            "schedulerName": "scheduler-plugins-scheduler",
            "plugins": {
                "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
                "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
            },
        }
    ],
}


def crds_of(provider):
    """Return the CRDs of a gang scheduler, of the version that was built."""
    return [yaml.safe_load(path.read_text()) for path in sorted((FILES_OF_GANG_SCHEDULERS / provider).glob("*.yaml"))]


def commands(provider, kubeconfig, folder):
    """Return the command lines of a gang scheduler and of its controller by name."""
    return {"coscheduling": _coscheduling, "volcano": _volcano}[provider](kubeconfig, folder)


def _coscheduling(kubeconfig, folder):
    config = folder / "coscheduling.yaml"
    config.write_text(yaml.safe_dump({**COSCHEDULING_CONFIG, "clientConnection": {"kubeconfig": str(kubeconfig)}}))
    serving = ["--bind-address=127.0.0.1", f"--secure-port={free_port()}", f"--cert-dir={folder}"]
    ports = [f"--metricsAddr=127.0.0.1:{free_port()}", f"--probeAddr=127.0.0.1:{free_port()}"]
    return {
        "coscheduling-scheduler": [f"--config={config}", *serving],
        "coscheduling-controller": ["--kubeconfig", str(kubeconfig), *ports],
    }


def _volcano(kubeconfig, folder):
    common = [f"--kubeconfig={kubeconfig}", "--leader-elect=false"]
    config = FILES_OF_GANG_SCHEDULERS / "volcano-scheduler.conf"
    own = [f"--scheduler-conf={config}", "--cache-dumper=false"]
    return {"volcano-scheduler": [*common, *own], "volcano-controller": common}


class GangScheduler:
    """A gang scheduler and its controller at work on an API server."""

    def __init__(self, guardian, provider, kubeconfig, folder):
        self.provider, self._guardian, self._folder = provider, guardian, folder
        self._commands = commands(provider, kubeconfig, folder)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self):
        for name, arguments in self._commands.items():
            with self.log(name).open("ab") as log:
                process = subprocess.Popen([BIN / name, *arguments], stdout=log, stderr=log, cwd=self._folder)
            self._processes[name] = process
            self._guardian.watch(process.pid)
        return self

    def kill(self):
        """Kill both."""
        for process in self._processes.values():
            process.kill()
            process.wait()
            self._guardian.forget(process.pid)
        self._processes.clear()

    def log(self, name) -> Path:
        return self._folder / f"{name}.log"

    def logs(self):
        return "\n".join(f"{name}:\n{self.log(name).read_text()[-4000:]}" for name in self._commands)


def make_queue(kube, name, **spec):
    """Make a queue of Volcano, and wait until its controller has opened it."""
    path = "/apis/scheduling.volcano.sh/v1beta1/queues"
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    kube.request("POST", path, {**head, "spec": {"weight": 1, **spec}})

    def is_open():
        return (kube.request("GET", f"{path}/{name}").get("status") or {}).get("state") == "Open"

    until(f"queue {name} is open", is_open)
    return name


def remove_queue(kube, name):
    try:
        kube.request("DELETE", f"/apis/scheduling.volcano.sh/v1beta1/queues/{name}")
    except KubeError as error:
        if error.code != 404:
            raise
