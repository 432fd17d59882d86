"""Faults of pods and of nodes: the simulated kubelet carries them out."""

from abc import abstractmethod

from chaos.faults.fault import Fault, Hit
from chaos.faults.users import OfJob, uid_of
from heterotp_api import names

NODES = ("node-a", "node-b", "node-c")
ENDS = ((1, ""), (1, ""), (75, ""), (137, "OOMKilled"), (143, ""), (134, ""), (77, ""))
STUCK = ("Unschedulable", "ImagePull")


class OfPod(OfJob):
    """A fault of one pod of the current attempt."""

    restarts = True
    fails = True
    shows = "restarted"

    @staticmethod
    def draw(random):
        return {**OfJob.draw(random), "pod": random.randrange(8)}

    def hit(self, world, job):
        pod = world.pod(job, self.arguments["pod"])
        if pod is None or pod["status"].get("phase") != "Running":
            return None
        world.kubelet.mark(pod["metadata"]["uid"], self.mark())
        return Hit((uid_of(job),), int(pod["metadata"]["labels"][names.LABEL_ATTEMPT]), pod["metadata"]["name"])

    @abstractmethod
    def mark(self):
        """Return what becomes of the pod."""


class PodFailed(OfPod):
    kind = "pod failed"

    @staticmethod
    def draw(random):
        return {**OfPod.draw(random), "end": random.choice(ENDS)}

    def mark(self):
        return ("end", *self.arguments["end"])


class JobRefusedInput(OfPod):
    """An exit code after which no restart helps."""

    kind = "rank refuses its input"

    def mark(self):
        return ("end", names.EXIT_BAD_INPUT, "")


class PodEvicted(OfPod):
    kind = "pod evicted"

    def mark(self):
        return ("evict",)


class PodsStuck(OfPod):
    """One pod fails, and those of the next attempt do not start for a while."""

    kind = "pods stuck"
    uid = ""

    @staticmethod
    def draw(random):
        return {**OfPod.draw(random), "seconds": random.uniform(2, 30), "why": random.choice(STUCK)}

    def hit(self, world, job):
        self.uid = uid_of(job)
        hit = super().hit(world, job)
        if hit is not None:
            world.kubelet.stuck[self.uid] = self.arguments["why"]
        return hit

    def end(self, world):
        world.kubelet.stuck.pop(self.uid, None)

    def mark(self):
        return ("end", 1, "")


class OfNode(Fault):
    @staticmethod
    def draw(random):
        return {"node": random.choice(NODES), "seconds": random.uniform(5, 45)}

    lost = False

    def begin(self, world):
        self.lost = True
        world.kubelet.lose(self.arguments["node"])
        pods = world.kube.list("pods", world.namespace)
        here = [pod for pod in pods if pod["spec"].get("nodeName") == self.arguments["node"]]
        return Hit(tuple({pod["metadata"]["ownerReferences"][0]["uid"] for pod in here}))

    def end(self, world):
        if self.lost:
            self.lost = False
            world.kubelet.find(self.arguments["node"])


class NodeSilent(OfNode):
    """The kubelet sends nothing and ends nothing: pods that are deleted stay."""

    kind = "node silent"


class NodeGone(OfNode):
    """The node is deleted: after 40 s Kubernetes removes its pods by force."""

    kind = "node gone"
    restarts = True
    fails = True

    @staticmethod
    def draw(random):
        return {**OfNode.draw(random), "seconds": random.uniform(5, 90)}

    def begin(self, world):
        hit = super().begin(world)
        world.kube.delete("nodes", None, self.arguments["node"])
        return hit


KINDS = (PodFailed, JobRefusedInput, PodEvicted, PodsStuck, NodeSilent, NodeGone)
