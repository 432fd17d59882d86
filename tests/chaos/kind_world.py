"""A run on the kind cluster: one job that really trains, the chart's operator, faults by Docker and kubectl."""

import base64
import shutil
import subprocess
import threading
import uuid
from contextlib import suppress

from chaos.actor import OwnKube
from chaos.faults.users import LOSSLESS
from chaos.invariants.training import UNDISTURBED
from chaos.kind_watch import READ, Checkpoints, CheckpointSeconds, Losses, OperatorSampler
from chaos.watcher import PLURALS, Watcher
from chaos.world import CHANGED, CHILDREN, is_current
from heterotp_api import names
from support.cluster_job import Job, Space, job, template, two_ranks
from support.kube import KubeError
from support.places import BIN
from support.release import OPERATORS, SYSTEM, Release

VOLUME = "/mnt/chaos"  # on the node of rank 0
VOLUME_IMAGE = "/var/chaos.img"
VOLUME_BYTES = 64 << 20
ENDED = ("Succeeded", "Failed")
JOB = "disturbed"
SLOW = "/run/chaos-slow"  # the lock of the loop that slows the volume; with .on: it goes on
STUTTER = """
touch "$1.on"
while [ -e "$1.on" ]; do fsfreeze -f "$2" && sleep 4; fsfreeze -u "$2"; sleep 0.1; done
"""
SECONDS_PER_ITERATION = 0.5
UNDISTURBED_SECONDS_PER_ITERATION = 0.01  # the losses are the same, and the faults can begin earlier
PART = 0.7  # of the time between faults in which the job trains
LEARNING_RATE = 3e-5  # at 1e-3 rounding alone grows to 1e-4 of the loss in 500 iterations, here to 2e-7 in 1,200
FIND = """
for process in /proc/[0-9]*; do
  tr '\\0' '\\n' <$process/environ 2>/dev/null | grep -qx "HOSTNAME=$1" || continue
  if tr '\\0' '\\n' <$process/environ | grep -q '^LOCAL_RANK='; then kind=rank; else kind=launcher; fi
  [ "$kind" = "$2" ] && kill -"$3" "${process#/proc/}" && echo "${process#/proc/}"
done
true
"""


HOSTILE = """
import base64, contextlib, socket, sys
answer = base64.b64decode(sys.argv[1])
server = socket.create_server(("", 9400))
while True:
    peer, _ = server.accept()
    with peer, contextlib.suppress(OSError):
        peer.settimeout(5)
        peer.recv(65536)
        peer.sendall(answer)
"""


def _trains(*arguments):
    """Return a job of two ranks whose losses show a lost update, and hide how sums are rounded."""
    body = two_ranks(*arguments)
    body["spec"]["training"]["learningRate"] = LEARNING_RATE
    return body


class KindWorld:
    """The cluster that HETEROTP_KIND_KUBECONFIG names, with the chart installed."""

    strategies = LOSSLESS  # losses are compared

    def __init__(self, kubeconfig, recorder, minutes):
        self.kubeconfig, self.recorder = kubeconfig, recorder
        self.kube = OwnKube(kubeconfig)
        self.space = Space(self.kube, f"chaos-{uuid.uuid4().hex[:6]}")
        self.namespace = self.space.name
        nodes = sorted(self.kube.list("nodes"), key=lambda node: node["metadata"]["name"])
        kinds = {node["metadata"]["labels"].get("heterotp.io/accelerator"): node["metadata"]["name"] for node in nodes}
        self.workers = [kinds["a100"], kinds["p100"]]
        self._iterations = round(PART * 60 * minutes / SECONDS_PER_ITERATION)
        self.settle_seconds = 600.0 + 2 * 60 * minutes  # every restart costs iterations
        self.actors = [Watcher(kubeconfig, self.namespace, plural, recorder) for plural in PLURALS]
        self.actors.append(OperatorSampler(self.kube, recorder))
        self.creating = True
        self._struck, self._lock = set(), threading.Lock()
        self.tenant = self  # the part of it that the driver sets

    def start(self):
        """Make the volume, run the job that is compared with, then start the one that faults hit."""
        self._make_volume()
        for actor in self.actors:
            actor.start()
        self._play_undisturbed()
        body = _trains(JOB, self._iterations, SECONDS_PER_ITERATION, {"everyIterations": 20})
        body["metadata"]["labels"] = {"slot": "0"}  # by which policies select it
        body["spec"]["runPolicy"] = {"backoffLimit": 900}
        for group in body["spec"]["workerGroups"]:  # what a process takes too much of is the container's, not ours
            (container,) = group["template"]["spec"]["containers"]
            container["resources"]["limits"] = {"memory": "1Gi"}
        self.job = self.space.apply(body)
        uid = self.kube.get("heterotpjobs", self.namespace, JOB)["metadata"]["uid"]
        read = lambda: self._on_volume(READ, VOLUME)  # noqa: E731
        own = (Losses, self.job), (CheckpointSeconds, self.job), (Checkpoints, read)
        self.actors += [kind(source, uid, self.recorder).start() for kind, source in own]
        return self

    def _play_undisturbed(self):
        job: Job = self.space.apply(_trains(UNDISTURBED, self._iterations, UNDISTURBED_SECONDS_PER_ITERATION))
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
        """Return the uids of the jobs that have not ended, first of the one whose ranks train."""
        jobs = self.kube.list("heterotpjobs", self.namespace)
        live = [job for job in jobs if (job.get("status") or {}).get("phase") not in ENDED]
        return [job["metadata"]["uid"] for job in sorted(live, key=lambda job: job["metadata"]["name"] != JOB)]

    def job_name(self, _):
        return JOB

    def has_leader(self, node):
        """Return whether the operator that leads runs on this node: what it does not live to see it cannot show."""
        release = Release(self.kube, self.kubeconfig)
        leader = release.pods().get(release.leader())
        return leader is not None and leader["spec"].get("nodeName") == node

    def start_hostile(self, answer):
        """Create another job, whose only pod sends these bytes to whoever connects; return it."""
        command = ["python3", "-c", HOSTILE, base64.b64encode(answer).decode()]
        body = job(f"hostile-{uuid.uuid4().hex[:6]}", [{"name": "one", "template": template(command=command)}])
        body["spec"]["runPolicy"] = {"backoffLimit": 900}
        return self.kube.create("heterotpjobs", self.namespace, body)

    def live(self, _):
        job = self.kube.get("heterotpjobs", self.namespace, JOB)
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

    def slow_volume(self):
        """Let it answer writes for a moment every few seconds; without the tools of any block device."""
        self.docker("exec", "--detach", self.workers[0], "flock", SLOW, "sh", "-c", STUTTER, "sh", SLOW, VOLUME)

    def speed_volume(self):
        """End that: the loop sees that its file is gone, and leaves the volume thawed."""
        self._on_volume(f"rm -f {SLOW}.on; flock -w 30 {SLOW} fsfreeze -u {VOLUME} 2>/dev/null; true")

    def _on_volume(self, script, *arguments):
        return self.docker("exec", self.workers[0], "sh", "-c", script, "sh", *arguments)

    # the end
    def settled(self):
        """Return whether all jobs have ended; nothing slows them any more."""
        self._delete_all(("stragglerinjections",))
        jobs = self.kube.list("heterotpjobs", self.namespace)
        others = [each for plural in CHANGED for each in self.kube.list(plural, self.namespace)]
        return all((job.get("status") or {}).get("phase") in ENDED for job in jobs) and all(map(is_current, others))

    def clear(self):
        self._delete_all(("heterotpjobs", *CHANGED))

    def _delete_all(self, plurals):
        for plural in plurals:
            for each in self.kube.list(plural, self.namespace):
                with suppress(KubeError):
                    self.kube.delete(plural, self.namespace, each["metadata"]["name"])

    def cleared(self):
        left = [each for plural in CHILDREN for each in self.kube.list(plural, self.namespace)]
        return not any(each["metadata"].get("ownerReferences") for each in left)
