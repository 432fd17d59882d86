"""Keeps jobs alive in a few slots: one that ended is deleted after a while, and another of the same name follows."""

import time
from contextlib import suppress
from random import Random

from chaos.actor import Actor
from chaos.faults.users import SLOTS
from support.gang import job
from support.kube import KubeError
from support.rank_zero import RankZero

KEPT_SECONDS = 4.0  # after its end, before the job is deleted
GRACE_SECONDS = 2
ENDED = ("Succeeded", "Failed")


def drawn(random, slot, port):
    """Return a random job of a slot and the seconds that its gang must run."""
    pods = [("a", random.randint(1, 2)), ("b", random.randint(0, 2))]
    policy = {"backoffLimit": random.choice([2, 50, 50]), "cleanPodPolicy": random.choice(["None", "Running", "All"])}
    if random.random() < 0.2:
        policy["ttlSecondsAfterFinished"] = random.randint(1, 5)
    labels = {"slot": str(slot)}
    made = job(f"job-{slot}", [each for each in pods if each[1]], metadata={"labels": labels}, **policy)
    for group in made["spec"]["workerGroups"]:
        group["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
    made["spec"]["metrics"] = {"port": port}
    return made, random.uniform(5, 40)


class Tenant(Actor):
    """The owner of all jobs; zeros: what answers as rank 0, by slot."""

    every = 0.5

    def __init__(self, kube, namespace, seed):
        super().__init__()
        self.kube, self.namespace = kube, namespace
        self.zeros = [RankZero(1) for _ in range(SLOTS)]
        for zero in self.zeros:
            zero.obeys = False
        self.creating = True
        self._randoms = [Random(f"jobs {seed} {slot}") for slot in range(SLOTS)]
        self._work = {}  # job uid -> seconds
        self._ended = {}  # job uid -> when its end was seen

    def create(self, slot):
        """Create the next job of a slot, if its name is free."""
        body, work = drawn(self._randoms[slot], slot, self.zeros[slot].port)
        with suppress(KubeError):
            made = self.kube.create("heterotpjobs", self.namespace, body)
            self._work[made["metadata"]["uid"]] = work

    def work_of(self, uid):
        return self._work.get(uid, 5.0)  # of a job whose creation was not answered

    def running(self, job, attempt, document):
        """Note that the whole gang of an attempt runs, with this control document."""
        zero = self.zeros[int(job["metadata"]["labels"]["slot"])]
        zero.ranks, zero.attempt = job["spec"]["tensorParallelDegree"], attempt
        zero.document = document or zero.document

    def step(self):
        jobs = {job["metadata"]["name"]: job for job in self.kube.list("heterotpjobs", self.namespace)}
        for slot in range(SLOTS):
            found = jobs.get(f"job-{slot}")
            if found is None:
                if self.creating:
                    self.create(slot)
            elif self.creating and (found.get("status") or {}).get("phase") in ENDED:
                self._delete_later(found)

    def _delete_later(self, job):
        uid = job["metadata"]["uid"]
        if time.monotonic() - self._ended.setdefault(uid, time.monotonic()) > KEPT_SECONDS:
            self.kube.delete("heterotpjobs", self.namespace, job["metadata"]["name"], preconditions={"uid": uid})

    def stop(self):
        super().stop()
        for zero in self.zeros:
            zero.close()
