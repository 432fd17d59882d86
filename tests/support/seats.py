"""Jobs whose ranks need a seat each, on nodes that have four: half of the GPUs of a node is a seat."""

import json

from heterotp_operator.cluster import PODGROUPS
from support.gang import Gang, groups_of, job
from support.kube import KubeError, until

NAMESPACE = "gangs"
SEATS = 4
GPUS_OF_A_SEAT = "4"  # of the eight of each of the two nodes of cp-up.sh


class Seated(Gang):
    """A job that waits for seats."""

    def __init__(self, kube, provider, name, ranks, **run_policy):
        gang = {"provider": provider, **run_policy.pop("gang", {})}
        body = job(name, pods=(("a", ranks),), gang=gang, **run_policy)
        asked = {"limits": {"nvidia.com/gpu": GPUS_OF_A_SEAT}}
        body["spec"]["workerGroups"] = groups_of((("a", ranks),), resources=asked)
        self.provider = provider
        super().__init__(kube, NAMESPACE, body)

    def seated(self):
        """Return how many of its pods have a node."""
        return sum(1 for pod in self.pods() if pod["spec"].get("nodeName"))

    def is_seated(self, attempt=1):
        """Wait until all its pods of this attempt have a node and the job runs."""
        self.attempt(attempt)
        self.phase("Running")
        assert self.seated() == self.degree
        return self

    @property
    def group(self):
        """The PodGroup as its scheduler sees it."""
        try:
            return self.kube.request("GET", PODGROUPS[self.provider].path(NAMESPACE, self.name))
        except KubeError as error:
            if error.code != 404:
                raise
            return {}

    def group_is(self, *phases):
        """Wait until the controller has written one of these phases into the PodGroup."""
        until(
            lambda: f"PodGroup of {self.name} is {phases}: {json.dumps(self.group)}",
            lambda: (self.group.get("status") or {}).get("phase") in phases,
        )


class Seats:
    """What a test makes on the nodes."""

    def __init__(self, kube, provider):
        self.kube, self.provider = kube, provider
        self._jobs: list[Seated] = []

    def job(self, name, ranks, **run_policy):
        self._jobs.append(Seated(self.kube, self.provider, name, ranks, **run_policy))
        return self._jobs[-1]

    def report(self):
        lines = []
        for each in self._jobs:
            lines.append(f"job {each.name}: {json.dumps(each.status, indent=1)}\nPodGroup: {json.dumps(each.group)}")
            lines += [
                f"pod {p['metadata']['name']}: {json.dumps(p['spec'].get('nodeName'))} {p['status']}"
                for p in each.pods()
            ]
        return "\n".join(lines)

    def clear(self):
        for each in self._jobs:
            if each.live() is not None:
                each.delete()
        until("all seats are free", lambda: not self.kube.list("pods", NAMESPACE))
