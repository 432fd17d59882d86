"""What a run on kind writes into its history: losses, the checkpoints on the volume, what the operators measure."""

import base64
import re

from chaos.actor import Actor, check
from chaos.operators import totals
from heterotp_trainer.checkpoint.manifest import Manifest
from support.release import OPERATORS, SYSTEM

CHECKPOINT_SECONDS = re.compile(r"^heterotp_checkpoint_seconds(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
PUBLISHED = re.compile(r"/step-(\d+)$")
# one line for each manifest: its directory, a tab, its bytes in base64; first of all that the volume is there
READ = """
mountpoint -q "$1" || exit 3
find "$1" -path '*/.*' -prune -o -path '*/step-*/manifest.json' -print | while read -r path; do
  text=$(base64 -w0 "$path" 2>/dev/null) && printf '%s\\t%s\\n' "${path%/manifest.json}" "$text"
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
        attempt = self._job.attempt
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
            self._recorder.write("checkpoint", job=self._uid, step=document["resumedFrom"], attempt=place[0])


class CheckpointSeconds(Actor):
    """Writes how long each checkpoint took, by rank 0's own metric, into the history."""

    every = 1.0

    def __init__(self, job, uid, recorder):
        super().__init__()
        self._job, self._uid, self._recorder, self._last = job, uid, recorder, None

    def step(self):
        pod = self._job.pods(self._job.attempt).get(0)
        text = self._job.ask(pod["metadata"]["name"], "/metrics") if pod else None
        found = CHECKPOINT_SECONDS.search(text or "")
        if found and (seconds := float(found[1])) and seconds != self._last:
            self._last = seconds
            self._recorder.write("saved", job=self._uid, seconds=seconds)


class Checkpoints(Actor):
    """Reads the manifests of all checkpoints on the volume; what two looks in a row have found goes into the history.

    read: () -> the output of READ; raises OSError where the volume cannot be read now.
    """

    every = 2.0

    def __init__(self, read, uid, recorder):
        super().__init__()
        self._read, self._uid, self._recorder = read, uid, recorder
        self._seen = self._written = None

    def step(self):
        found = published(self._read())
        settled, self._seen = found == self._seen, found
        if settled and found != self._written:
            self._written = found
            steps, broken = found
            self._recorder.write("published", job=self._uid, steps=steps, broken=broken)


def published(text):
    """Return [iteration, attempt] of each checkpoint that is whole, ascending, and why the others are not."""
    steps, broken = [], []
    for line in text.splitlines():
        directory, _, encoded = line.partition("\t")
        try:
            manifest = Manifest.from_json(_decoded(encoded))
            named = int(PUBLISHED.search(directory)[1])
        except (ValueError, KeyError, TypeError) as error:
            broken.append(f"{directory}: {type(error).__name__}: {error}")
            continue
        if manifest.iteration == named:
            steps.append([manifest.iteration, manifest.attempt])
        else:
            broken.append(f"{directory}: its manifest is of iteration {manifest.iteration}")
    return sorted(steps), sorted(broken)


def _decoded(encoded):
    return base64.b64decode(encoded, validate=True).decode()


class OperatorSampler(Actor):
    """Writes memory and metrics of the operators' processes into the history.

    Each pod is asked in a thread of its own: the API server waits half a minute for one on a node that is away.
    """

    every = 2.0

    def __init__(self, kube, recorder):
        super().__init__()
        self._kube, self._recorder, self._pods = kube, recorder, {}

    def step(self):
        there = {pod["metadata"]["name"] for pod in self._kube.list("pods", SYSTEM, OPERATORS)}
        for name in self._pods.keys() - there:
            self._pods.pop(name).ask_to_stop()
        for name in there - self._pods.keys():
            self._pods[name] = OperatorPod(self._kube, self._recorder, name).start()
        check(self._pods.values())

    def stop(self):
        super().stop()
        for pod in self._pods.values():
            pod.stop()


class OperatorPod(Actor):
    """Writes memory and metrics of one of them."""

    every = 2.0

    def __init__(self, kube, recorder, name):
        super().__init__()
        self._kube, self._recorder, self._name = kube, recorder, name

    def step(self):
        path = self._kube.path("pods", SYSTEM, f"{self._name}:8080", "proxy/metrics")
        text = self._kube.text("GET", path).decode()
        self._recorder.write("metrics", pid=self._name, values=totals(text))
        for line in text.splitlines():
            if line.startswith("process_resident_memory_bytes "):
                self._recorder.write("sample", pid=self._name, bytes=int(float(line.split()[1])))
