"""What the jobs' owners do at any time: suspend, change, delete and create again, policies, injections, children."""

from abc import abstractmethod
from contextlib import suppress

from chaos.faults.fault import Fault, Hit
from heterotp_api import names
from support.balanced_job import custom
from support.gang import groups_of
from support.kube import KubeError

SLOTS = 4
STRATEGIES = ("None", "ZERO", "MIG", "SEMI")
LOSSLESS = ("None", "MIG")


class OfJob(Fault):
    """A fault of the job in one slot; where nothing can be hit there, of the job in the next one."""

    @staticmethod
    def draw(random):
        return {"slot": random.randrange(SLOTS)}

    def begin(self, world):
        for further in range(SLOTS):
            job = world.live((self.arguments["slot"] + further) % SLOTS)
            if job is not None and (hit := self.hit(world, job)) is not None:
                return hit
        return None

    @abstractmethod
    def hit(self, world, job):
        """Hit this job; return what was hit."""


def uid_of(job):
    return job["metadata"]["uid"]


def slot_of(job):
    return int(job["metadata"]["labels"]["slot"])


def attempt_of(job):
    return (job.get("status") or {}).get("attempt") or 0


def patch_same(world, job, spec):
    """Patch the spec of exactly this job, not of a later one of its name; return whether it was there."""
    body = {"metadata": {"uid": uid_of(job)}, "spec": spec}
    try:
        world.kube.patch("heterotpjobs", world.namespace, job["metadata"]["name"], body)
    except KubeError as error:
        if error.code not in (404, 409, 422):
            raise
        return False
    return True


class Suspended(OfJob):
    """Suspended for a while, then resumed."""

    kind = "suspended and resumed"
    where = ("api", "kind")
    restarts = True
    shows = "suspended"
    job = None

    @staticmethod
    def draw(random):
        return {**OfJob.draw(random), "seconds": random.uniform(0.1, 20)}

    def hit(self, world, job):
        if job["spec"]["runPolicy"].get("suspend"):
            return None
        self.job = job
        if not patch_same(world, job, {"runPolicy": {"suspend": True}}):
            return None
        return Hit((uid_of(job),), attempt_of(job))

    def end(self, world):
        if self.job is not None:
            patch_same(world, self.job, {"runPolicy": {"suspend": False}})


class ChangedWhileSuspended(Suspended):
    """Another shape and another port are given together with the resumption."""

    kind = "changed while suspended"
    where = ("api",)

    @staticmethod
    def draw(random):
        return {**Suspended.draw(random), "pods": random.randint(1, 3)}

    def end(self, world):
        if self.job is None:
            return
        pods, port = self.arguments["pods"], {"port": 29000 + self.arguments["pods"]}
        shape = {"tensorParallelDegree": pods, "workerGroups": groups_of((("c", pods),)), "rendezvous": port}
        if not patch_same(world, self.job, {**shape, "runPolicy": {"suspend": False}}):
            patch_same(world, self.job, {"runPolicy": {"suspend": False}})  # resumed by another fault already


class TemplateEdited(OfJob):
    kind = "template edited"
    restarts = True  # where not all pods of the attempt are made yet

    @staticmethod
    def draw(random):
        return {**OfJob.draw(random), "image": f"heterotp/trainer:{random.randrange(1000)}"}

    def hit(self, world, job):
        groups = job["spec"]["workerGroups"]
        for group in groups:
            group["template"]["spec"]["containers"][0]["image"] = self.arguments["image"]
        return Hit((uid_of(job),)) if patch_same(world, job, {"workerGroups": groups}) else None


class BackoffLimitEdited(OfJob):
    kind = "backoffLimit edited"
    fails = True

    @staticmethod
    def draw(random):
        return {**OfJob.draw(random), "limit": random.choice([0, 3, 50])}

    def hit(self, world, job):
        changed = patch_same(world, job, {"runPolicy": {"backoffLimit": self.arguments["limit"]}})
        return Hit((uid_of(job),)) if changed else None


class Deleted(OfJob):
    kind = "job deleted"

    @staticmethod
    def draw(random):
        return {**OfJob.draw(random), "how": random.choice(["Background", "Foreground"])}

    def hit(self, world, job):
        world.delete(job, self.arguments["how"])
        return Hit((uid_of(job),))


class Recreated(OfJob):
    """Deleted, and another job of the same name is there before the old pods are gone."""

    kind = "job created again"

    def hit(self, world, job):
        world.delete(job, "Background")
        world.tenant.create(slot_of(job))
        return Hit((uid_of(job),))


class ChildDeleted(OfJob):
    kind = "child deleted"
    shows = "child mended"

    @staticmethod
    def draw(random):
        return {**OfJob.draw(random), "child": random.choice(["services", "configmaps"])}

    def hit(self, world, job):
        plural, name = self.arguments["child"], child_name(job, self.arguments["child"])
        if world.kube.get(plural, world.namespace, name) is None:
            return None
        with suppress(KubeError):
            world.kube.delete(plural, world.namespace, name)
        return Hit((uid_of(job),), attempt_of(job), f"{plural}/{name}")


def child_name(job, plural):
    name = job["metadata"]["name"]
    return names.service_name(name) if plural == "services" else names.control_name(name)


class ChildEdited(ChildDeleted):
    kind = "child edited"

    def hit(self, world, job):
        plural, name = self.arguments["child"], child_name(job, self.arguments["child"])
        if world.kube.get(plural, world.namespace, name) is None:
            return None
        damage = {"spec": {"selector": {"team": "mine"}}} if plural == "services" else {"data": {"control.json": "{"}}
        world.kube.patch(plural, world.namespace, name, damage)
        return Hit((uid_of(job),), attempt_of(job), f"{plural}/{name}")


class PodDeleted(OfJob):
    kind = "pod deleted"
    where = ("api", "kind")
    restarts = True
    fails = True
    shows = "restarted"

    @staticmethod
    def draw(random):
        return {**OfJob.draw(random), "pod": random.randrange(8), "grace": random.choice([None, 0])}

    def hit(self, world, job):
        pod = world.pod(job, self.arguments["pod"])
        if pod is None:
            return None
        options = {} if self.arguments["grace"] is None else {"gracePeriodSeconds": 0}
        preconditions = {"uid": pod["metadata"]["uid"]}
        world.kube.delete("pods", world.namespace, pod["metadata"]["name"], preconditions=preconditions, **options)
        return Hit((uid_of(job),), int(pod["metadata"]["labels"][names.LABEL_ATTEMPT]), pod["metadata"]["name"])


class Custom(Fault):
    """A policy or an injection is created, edited or deleted, whatever is possible."""

    plural = ""

    @staticmethod
    def draw(random):
        return {"name": f"c{random.randrange(3)}", "slot": random.randrange(SLOTS), "deleted": random.random() < 0.3}

    def begin(self, world):
        name, spec = self.arguments["name"], self.spec(world)
        there = world.kube.get(self.plural, world.namespace, name) is not None
        with suppress(KubeError):
            if there and self.arguments["deleted"]:
                world.kube.delete(self.plural, world.namespace, name)
            elif there:
                world.kube.patch(self.plural, world.namespace, name, {"spec": spec})
            else:
                world.kube.create(self.plural, world.namespace, custom(self.singular, name, spec))
        return Hit()


class PolicyChanged(Custom):
    kind = "policy changed"
    where = ("api", "kind")
    plural, singular = "balancingpolicies", "BalancingPolicy"

    @staticmethod
    def draw(random):
        return {**Custom.draw(random), "strategy": random.choice(STRATEGIES)}

    def spec(self, world):
        labels, drawn = {"slot": str(self.arguments["slot"])}, self.arguments["strategy"]
        strategy = drawn if drawn in world.strategies else world.strategies[-1]
        return {"selector": {"matchLabels": labels}, "strategy": strategy}


class InjectionChanged(Custom):
    kind = "injection changed"
    where = ("api", "kind")
    plural, singular = "stragglerinjections", "StragglerInjection"

    @staticmethod
    def draw(random):
        return {**Custom.draw(random), "slowdown": random.choice([1.5, 2.0, 4.0]), "ranks": [random.randrange(4)]}

    def spec(self, world):
        return {
            "jobRef": {"name": world.job_name(self.arguments["slot"])},
            "targets": {"ranks": self.arguments["ranks"]},
            "slowdown": self.arguments["slowdown"],
        }


KINDS = (
    *(Suspended, ChangedWhileSuspended, TemplateEdited, BackoffLimitEdited, Deleted, Recreated),
    *(ChildDeleted, ChildEdited, PodDeleted, PolicyChanged, InjectionChanged),
)
