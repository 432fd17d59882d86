"""What one namespace stores so that the operator runs out of memory; the operator keeps little of it."""

from contextlib import suppress

from chaos.faults.fault import Fault, Hit
from support.hoards import configmap, large_job
from support.kube import KubeError

COUNT = 5  # of each kind: one page would take several hundred megabytes


class Hoard(Fault):
    """Objects of a megabyte each: valid jobs, or ConfigMaps with the operator's label."""

    makers = ()  # plural and what makes one

    @staticmethod
    def draw(random):
        return {"seconds": random.uniform(5, 20), "number": random.randrange(10**6)}

    def begin(self, world):
        for plural, make in self.makers:
            for name in self._names():
                world.kube.create(plural, world.namespace, make(name))
        return Hit()

    def end(self, world):
        for plural, _ in self.makers:
            for name in self._names():
                with suppress(KubeError):  # it was never made
                    world.kube.delete(plural, world.namespace, name)

    def _names(self):
        return [f"hoard-{self.arguments['number']}-{index}" for index in range(COUNT)]


class HoardedJobs(Hoard):
    kind = "large jobs stored"
    makers = (("heterotpjobs", large_job),)


class HoardedChildren(Hoard):
    kind = "large children forged"
    makers = (("configmaps", configmap),)


KINDS = (HoardedJobs, HoardedChildren)
