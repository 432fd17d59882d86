"""What a gang scheduler needs: marks on each pod, and perhaps an object for the whole gang."""

from collections.abc import Callable
from dataclasses import dataclass

from heterotp_api.run_policy import Gang

from heterotp_operator.reconcile.actions import Body


@dataclass(frozen=True)
class GangMember:
    """One pod of an attempt and the gang that it belongs to; `pods` is how many pods the gang has.

    What stands below `spec` of the body belongs to the template, which all pods share: it is replaced, never changed.
    """

    job: str
    attempt: int
    pods: int
    body: Body

    def label(self, name: str, value: str) -> None:
        """Set a label of the pod."""
        self.body["metadata"]["labels"][name] = value

    def annotate(self, name: str, value: str) -> None:
        """Set an annotation of the pod."""
        self.body["metadata"].setdefault("annotations", {})[name] = value


@dataclass(frozen=True)
class GangScheduler:
    """One gang scheduler; pod_group_api is the apiVersion of its PodGroup kind, empty where it has none.

    mark_pod: mark a pod as a member of its gang. pod_group_spec: the PodGroup's spec for so many pods.
    """

    mark_pod: Callable[[Gang, GangMember], None]
    pod_group_api: str = ""
    pod_group_spec: Callable[[Gang, int], Body] = lambda gang, pods: {}
