"""A run on the kind cluster: one job that really trains, the chart's operator, faults by Docker and kubectl."""

import shutil
import subprocess
import threading
import uuid
from contextlib import suppress

from chaos.actor import Actor, OwnKube
from chaos.invariants.training import UNDISTURBED
from chaos.watcher import PLURALS, Watcher
from chaos.world import CHILDREN
from heterotp_api import names
from support.cluster_job import Job, Space, two_ranks
from support.kube import KubeError
from support.places import BIN
from support.release import OPERATORS, SYSTEM

VOLUME = "/mnt/chaos"  # on the node of rank 0
VOLUME_IMAGE = "/var/chaos.img"
VOLUME_BYTES = 64 << 20
ENDED = ("Succeeded", "Failed")
SECONDS_PER_ITERATION = 0.5
UNDISTURBED_SECONDS_PER_ITERATION = 0.01  # the losses are the same, and the faults can begin earlier
FIND = """
for process in /proc/[0-9]*; do
  tr '\\0' '\\n' <$process/environ 2>/dev/null | grep -qx "HOSTNAME=$1" || continue
  if tr '\\0' '\\n' <$process/environ | grep -q '^LOCAL_RANK='; then kind=rank; else kind=launcher; fi
  [ "$kind" = "$2" ] && kill -"$3" "${process#/proc/}" && echo "${process#/proc/}"
done
true
"""


class Losses(Actor):
    """Polls rank 0 and writes the losses, and the checkpoint that each attempt began from, into the history."""

    every = 0.1

    def __init__(self, job, uid, recorder):
        super().__init__()
        self._job, self._uid, self._recorder = job, uid, recorder
        self._last, self._resumed = None, set()

    def step(self):
        attempt = self._job.status.get("attempt")
        document = self._job.rank_zero(attempt) if attempt else None
        if not document or document["state"] == "starting" or document.get("loss") is None:
            return
        place = document["attempt"], document["iteration"]
        if place != self._last:
            self._last = place
            fields = {"attempt": place[0], "iteration": place[1], "loss": document["loss"]}
            self._recorder.write("loss", job=self._uid, **fields)
        if document["attempt"] not in self._resumed and document.get("resumedFrom") is not None:
            self._resumed.add(document["attempt"])
            self._recorder.write("checkpoint", job=self._uid, step=document["resumedFrom"])


class OperatorMemory(Actor):
    """Writes the memory of the operators' processes into the history."""

    every = 2.0

    def __init__(self, kube, recorder):
        super().__init__()
        self._kube, self._recorder = kube, recorder

    def step(self):
        for pod in self._kube.list("pods", SYSTEM, OPERATORS):
            name = pod["metadata"]["name"]
            text = self._kube.text("GET", self._kube.path("pods", SYSTEM, f"{name}:8080", "proxy/metrics")).decode()
            for line in text.splitlines():
                if line.startswith("process_resident_memory_bytes "):
                    self._recorder.write("sample", pid=name, bytes=int(float(line.split()[1])))


class KindWorld:
    """The cluster that HETEROTP_KIND_KUBECONFIG names, with the chart installed."""

    def __init__(self, kubeconfig, recorder, minutes):
        self.kubeconfig, self.recorder = kubeconfig, recorder
        self.kube = OwnKube(kubeconfig)
        self.space = Space(self.kube, f"chaos-{uuid.uuid4().hex[:6]}")
        self.namespace = self.space.name
        nodes = sorted(self.kube.list("nodes"), key=lambda node: node["metadata"]["name"])
        kinds = {node["metadata"]["labels"].get("heterotp.io/accelerator"): node["metadata"]["name"] for node in nodes}
        self.workers = [kinds["a100"], kinds["p100"]]
        self._iterations = round(60 * minutes / SECONDS_PER_ITERATION)
        self.settle_seconds = 600.0 + 2 * 60 * minutes  # every restart costs iterations
        self.actors = [Watcher(kubeconfig, self.namespace, plural, recorder) for plural in PLURALS]
        self.actors.append(OperatorMemory(self.kube, recorder))
        self.creating = True
        self._struck, self._lock = set(), threading.Lock()
        self.tenant = self  # the part of it that the driver sets

    def start(self):
        """Make the volume, run the job that is compared with, then start the one that faults hit."""
        self._make_volume()
        for actor in self.actors:
            actor.start()
        self._play_undisturbed()
        body = two_ranks("disturbed", self._iterations, SECONDS_PER_ITERATION, {"everyIterations": 20})
        body["spec"]["runPolicy"] = {"backoffLimit": 900}
        for group in body["spec"]["workerGroups"]:  # what a process takes too much of is the container's, not ours
            (container,) = group["template"]["spec"]["containers"]
            container["resources"]["limits"] = {"memory": "1Gi"}
        self.job = self.space.apply(body)
        uid = self.kube.get("heterotpjobs", self.namespace, "disturbed")["metadata"]["uid"]
        self.actors.append(Losses(self.job, uid, self.recorder).start())
        return self

    def _play_undisturbed(self):
        job: Job = self.space.apply(two_ranks(UNDISTURBED, self._iterations, UNDISTURBED_SECONDS_PER_ITERATION))
        losses = Losses(job, UNDISTURBED, self.recorder).start()
        job.reaches(120.0 + self._iterations * SECONDS_PER_ITERATION, phase="Succeeded")
        losses.stop()

    def close(self):
        for actor in self.actors:
            actor.ask_to_stop()
        for actor in self.actors:
            actor.stop()
        self.space.remove()
        self.kube.close_all()
        self._on_volume(f"umount {VOLUME}; rm -f {VOLUME_IMAGE}; sed -i '/^.var.chaos.img /d' /etc/fstab")

    # what faults use
    def take(self, thing):
        """Return whether no other fault has struck this thing; from now on one has."""
        with self._lock:
            free = thing not in self._struck
            self._struck.add(thing)
        return free

    def give_back(self, thing):
        self._struck.discard(thing)

    def docker(self, *arguments):
        command = [shutil.which("docker") or BIN / "docker", *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired as error:
            raise OSError(str(error)) from error
        if done.returncode:
            raise OSError(f"docker {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def execute(self, pod, program):
        """Run a Python program in the trainer's container; however it ends."""
        name = pod["metadata"]["name"]
        command = [BIN / "kubectl", "--kubeconfig", self.kubeconfig, "-n", self.namespace, "exec", name]
        command += ["-c", names.CONTAINER, "--", "python3", "-c", program]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, capture_output=True, timeout=120)

    def signal(self, pod, signal, ranks):
        """Send a signal to the rank processes of a pod, or to its launcher; return whether there was one."""
        kind, name = "rank" if ranks else "launcher", pod["metadata"]["name"]
        return bool(self.docker("exec", pod["spec"]["nodeName"], "sh", "-c", FIND, "sh", name, kind, signal).strip())

    def uids(self):
        return [job["metadata"]["uid"] for job in self.kube.list("heterotpjobs", self.namespace)]

    def live(self, _):
        job = self.kube.get("heterotpjobs", self.namespace, "disturbed")
        return None if job is None or (job.get("status") or {}).get("phase") in ENDED else job

    def pod(self, job, number):
        """Return one of the pods of the job's current attempt, in the order of ranks; None without one."""
        pods = Job(self.space, job["metadata"]["name"]).pods((job.get("status") or {}).get("attempt"))
        alive = [pod for _, pod in sorted(pods.items()) if not pod["metadata"].get("deletionTimestamp")]
        return alive[number % len(alive)] if alive else None

    def running_pod(self, job, number):
        pod = self.pod(job, number)
        return pod if pod is not None and pod["status"].get("phase") == "Running" else None

    def kill_operator(self):
        for pod in self.kube.list("pods", SYSTEM, OPERATORS):
            self.kube.delete("pods", SYSTEM, pod["metadata"]["name"], gracePeriodSeconds=0)

    # the volume of the checkpoints: of its own size, so that nothing else runs out of space
    def _make_volume(self):
        image = f"truncate -s {VOLUME_BYTES} {VOLUME_IMAGE} && mkfs.ext4 -q {VOLUME_IMAGE}"
        entry = f"echo {VOLUME_IMAGE} {VOLUME} ext4 loop,nofail 0 0 >>/etc/fstab"  # mounted again when the node starts
        self._on_volume(f"{image} && {entry} && mkdir -p {VOLUME} && mount {VOLUME} && chmod 1777 {VOLUME}")
        term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [self.workers[0]]}
        spec = {
            "capacity": {"storage": "64Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": VOLUME},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            "claimRef": {"namespace": self.namespace, "name": "checkpoints"},
        }
        self.kube.create("persistentvolumes", None, {"metadata": {"name": self.namespace}, "spec": spec})
        claim = {key: spec[key] for key in ("accessModes", "storageClassName")} | {"volumeName": self.namespace}
        claim["resources"] = {"requests": {"storage": "64Mi"}}
        body = {"metadata": {"name": "checkpoints"}, "spec": claim}
        self.kube.create("persistentvolumeclaims", self.namespace, body)

    def fill_volume(self):
        self._on_volume(f"dd if=/dev/zero of={VOLUME}/full bs=1M || true")

    def empty_volume(self):
        self._on_volume(f"rm -f {VOLUME}/full")

    def freeze_volume(self):
        self._on_volume(f"fsfreeze -f {VOLUME}")

    def thaw_volume(self):
        self._on_volume(f"fsfreeze -u {VOLUME}")

    def _on_volume(self, script):
        self.docker("exec", self.workers[0], "sh", "-c", script)

    # the end
    def settled(self):
        jobs = self.kube.list("heterotpjobs", self.namespace)
        return all((job.get("status") or {}).get("phase") in ENDED for job in jobs)

    def clear(self):
        for job in self.kube.list("heterotpjobs", self.namespace):
            with suppress(KubeError):
                self.kube.delete("heterotpjobs", self.namespace, job["metadata"]["name"])

    def cleared(self):
        left = [each for plural in CHILDREN for each in self.kube.list(plural, self.namespace)]
        return not any(each["metadata"].get("ownerReferences") for each in left)
