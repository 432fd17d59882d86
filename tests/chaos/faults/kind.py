"""Faults on the kind cluster, whose nodes are containers of Docker: nodes, processes of ranks, storage, operators."""

from abc import abstractmethod
from dataclasses import replace

from chaos.faults.fault import Fault, Hit
from chaos.faults.ranks import FIXED
from chaos.faults.users import OfJob, uid_of
from heterotp_api import names

SMALL_ATTACKS = tuple(name for name in FIXED if name not in ("deep", "huge"))  # an argument of a process holds them


class OnKind(Fault):
    where = ("kind",)


class OfOneThing(OnKind):
    """A fault that lasts, of a thing that has one fault at a time: another one meets nothing."""

    restarts = True
    fails = True

    def begin(self, world):
        self.thing = self.chosen(world)
        if not world.take(self.thing):
            return None
        self.strike(world)
        return Hit(tuple(world.uids()), detail=self.thing)

    def end(self, world):
        self.heal(world)
        world.give_back(self.thing)

    @abstractmethod
    def chosen(self, world):
        """Return what the fault is of."""

    @abstractmethod
    def heal(self, world):
        """Heal it."""

    @abstractmethod
    def strike(self, world):
        """Strike it."""


class OfWorker(OfOneThing):
    """A fault of one worker node: pods on it may be lost, and the job's attempt with them."""

    outage = True  # the operator may be there
    shows = "job halted"

    @staticmethod
    def draw(random):
        return {"worker": random.randrange(2), "seconds": random.choice([2, 10, 40, 75])}

    def begin(self, world):
        seen = not world.has_leader(world.workers[self.arguments["worker"]])
        hit = super().begin(world)
        return hit and replace(hit, shows=seen)

    def chosen(self, world):
        return world.workers[self.arguments["worker"]]


class NodePaused(OfWorker):
    kind = "node paused"

    def strike(self, world):
        world.docker("pause", self.thing)

    def heal(self, world):
        world.docker("unpause", self.thing)


class NodeStopped(OfWorker):
    kind = "node stopped"

    def strike(self, world):
        world.docker("stop", "--time", "1", self.thing)

    def heal(self, world):
        world.docker("start", self.thing)


class NodeCut(OfWorker):
    """The node loses its network; it gets the same address back."""

    kind = "node cut off"

    def strike(self, world):
        form = '{{(index .NetworkSettings.Networks "kind").IPAddress}}'
        self.address = world.docker("inspect", "--format", form, self.thing).strip()
        world.docker("network", "disconnect", "kind", self.thing)

    def heal(self, world):
        world.docker("network", "connect", "--ip", self.address, "kind", self.thing)


def attempt_in(pod):
    return int(pod["metadata"]["labels"][names.LABEL_ATTEMPT])


class OfProcess(OfJob):
    """A fault of processes in the pod of one rank, or in that of rank 0."""

    where = ("kind",)
    restarts = True
    fails = True
    shows = "restarted"
    ranks = True  # rank processes, else the launcher
    first = False  # always the pod of rank 0
    pod = None
    signal = "KILL"

    @staticmethod
    def draw(random):
        return {"slot": 0, "pod": random.randrange(8)}

    def hit(self, world, job):
        number = 0 if self.first else self.arguments["pod"]
        pod = world.running_pod(job, number)
        if pod is None or not world.signal(pod, self.signal, self.ranks):
            return None
        self.pod = pod
        return Hit((uid_of(job),), attempt_in(pod), pod["metadata"]["name"])


class RankZeroKilled(OfProcess):
    kind = "rank 0 killed"
    first = True


class RankKilled(OfProcess):
    kind = "any rank killed"


class LauncherKilled(OfProcess):
    kind = "launcher killed"
    ranks = False


class RankFrozen(OfProcess):
    """SIGSTOP for a while: shorter than the collectives' timeout the gang goes on, longer it restarts."""

    kind = "rank frozen"
    signal = "STOP"
    shows = "job halted"

    @staticmethod
    def draw(random):
        return {**OfProcess.draw(random), "seconds": random.choice([2, 10, 90])}

    def end(self, world):
        if self.pod is not None:
            world.signal(self.pod, "CONT", True)


class LauncherFrozen(RankFrozen):
    """SIGSTOP of the launcher for a while: the ranks train on, and what they write waits in its pipe."""

    kind = "launcher frozen"
    ranks = False
    restarts = False
    fails = False
    shows = ""  # nothing of the job is lost

    def end(self, world):
        if self.pod is not None:
            world.signal(self.pod, "CONT", False)


class OutOfMemory(OfProcess):
    """A process in the container takes memory until the kernel ends one of them: a rank, or only this process."""

    kind = "out of memory"

    def hit(self, world, job):
        pod = world.running_pod(job, self.arguments["pod"])
        if pod is None:
            return None
        world.execute(pod, "held = []\nwhile True: held.append(bytearray(1 << 24))")
        unharmed = all(world.signal(pod, "0", ranks) for ranks in (True, False))
        return Hit((uid_of(job),), attempt_in(pod), pod["metadata"]["name"], shows=not unharmed)


class OfVolume(OfOneThing):
    """A fault of the checkpoints' volume, 64 MiB of its own."""

    shows = "storage reported"

    def chosen(self, world):
        return "volume"


class VolumeFull(OfVolume):
    """It is filled for a while: ranks go on without a new checkpoint."""

    kind = "volume full"

    @staticmethod
    def draw(random):
        return {"seconds": random.uniform(5, 60)}

    def strike(self, world):
        world.fill_volume()

    def heal(self, world):
        world.empty_volume()


class VolumeHangs(OfVolume):
    """It answers no write for a while, as a network disk does: a checkpoint waits, or is left out."""

    kind = "volume hangs"

    @staticmethod
    def draw(random):
        return {"seconds": random.choice([2, 10, 50])}

    def strike(self, world):
        world.freeze_volume()

    def heal(self, world):
        world.thaw_volume()


class VolumeSlow(OfVolume):
    """It answers writes for a moment every four seconds: a checkpoint takes as many of these as it has steps."""

    kind = "volume slow"

    @staticmethod
    def draw(random):
        return {"seconds": random.choice([10, 50])}

    def strike(self, world):
        world.slow_volume()

    def heal(self, world):
        world.speed_volume()


class HostileJob(OnKind):
    """Another job of the namespace, whose rank 0 answers the operator's polls with what it likes."""

    kind = "hostile job"
    shows = "stranger counted"
    job = None

    @staticmethod
    def draw(random):
        return {"seconds": random.choice([10, 40]), "attack": random.choice(SMALL_ATTACKS)}

    def begin(self, world):
        self.job = world.start_hostile(FIXED[self.arguments["attack"]]())
        return Hit((uid_of(self.job),), 1)

    def end(self, world):
        if self.job is not None:
            world.kube.delete("heterotpjobs", world.namespace, self.job["metadata"]["name"])


class OperatorPodKilled(OnKind):
    kind = "operator pod killed"
    ends_operator = True
    outage = True

    def begin(self, world):
        world.kill_operator()
        return Hit()


KINDS = (
    *(NodePaused, NodeStopped, NodeCut, RankZeroKilled, RankKilled, LauncherKilled, RankFrozen),
    *(LauncherFrozen, OutOfMemory, VolumeFull, VolumeHangs, VolumeSlow, HostileJob, OperatorPodKilled),
)
