"""What one namespace stores so that the operator runs out of memory; the operator keeps little of it."""

from chaos.faults.fault import Fault, Hit
from support.hoards import configmap, large_job
from support.kube import KubeError

NOT_FOUND = 404
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
                _delete(world, plural, name)

    def _names(self):
        return [f"hoard-{self.arguments['number']}-{index}" for index in range(COUNT)]


def _delete(world, plural, name):
    """Delete what may never have been made; a refusal of another kind is the driver's to wait out."""
    try:
        world.kube.delete(plural, world.namespace, name)
    except KubeError as error:
        if error.code != NOT_FOUND:
            raise


class HoardedJobs(Hoard):
    kind = "large jobs stored"
    makers = (("heterotpjobs", large_job),)


class HoardedChildren(Hoard):
    kind = "large children forged"
    makers = (("configmaps", configmap),)


KINDS = (HoardedJobs, HoardedChildren)
