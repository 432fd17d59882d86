"""The three CustomResourceDefinitions, made from the models."""

from dataclasses import dataclass

from heterotp_api.base import Model
from heterotp_api.conditions import ACCEPTED, APPLIED, CONFLICT
from heterotp_api.injection import StragglerInjection
from heterotp_api.job import HeteroTPJob
from heterotp_api.names import GROUP, VERSION
from heterotp_api.policy import BalancingPolicy
from heterotp_api.schema import Json, structural


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; wide: only of `kubectl get -o wide`."""

    name: str
    type: str
    path: str
    wide: bool = False

    def as_json(self) -> Json:
        """Return the entry of additionalPrinterColumns; kubectl shows a priority above 0 only with -o wide."""
        entry: Json = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return entry | {"priority": 1} if self.wide else entry


def _reason(condition: str) -> str:
    """Return the path of a condition's reason."""
    return f'.status.conditions[?(@.type=="{condition}")].reason'


@dataclass(frozen=True)
class Kind:
    """One kind of the group and how kubectl shows it."""

    model: type[Model]
    plural: str
    short: str
    columns: tuple[Column, ...]
    scaled: str = ""  # path of what `kubectl scale` asks to change

    @property
    def name(self) -> str:
        """The kind, as written in a manifest."""
        return self.model.__name__


AGE = Column("Age", "date", ".metadata.creationTimestamp")
KINDS = (
    Kind(
        HeteroTPJob,
        "heterotpjobs",
        "htpj",
        (
            Column("State", "string", ".status.phase"),
            Column("Waiting", "string", ".status.waitingFor"),
            Column("Ranks", "integer", ".spec.tensorParallelDegree"),
            Column("Iter/s", "number", ".status.training.iterationsPerSecond"),
            Column("Slowest", "string", ".status.slowest"),
            Column("Restarts", "integer", ".status.restarts"),
            AGE,
            Column("Iteration", "integer", ".status.training.iteration", wide=True),
            Column("Loss", "number", ".status.training.loss", wide=True),
            Column("Policy", "string", ".status.balancing.policy", wide=True),
            Column("Strategy", "string", ".status.balancing.strategy", wide=True),
            Column("Queue", "string", ".spec.runPolicy.gang.queue", wide=True),
        ),
        ".spec.tensorParallelDegree",
    ),
    Kind(
        BalancingPolicy,
        "balancingpolicies",
        "bpol",
        (
            Column("Strategy", "string", ".spec.strategy"),
            Column("Selected", "integer", ".status.selectedJobs"),
            Column("Applied", "integer", ".status.appliedJobs"),
            Column("Reason", "string", _reason(APPLIED)),
            Column("Saved-s", "number", ".status.savedSeconds"),
            AGE,
            Column("Accepted", "string", _reason(ACCEPTED), wide=True),
            Column("Conflict", "string", _reason(CONFLICT), wide=True),
        ),
    ),
    Kind(
        StragglerInjection,
        "stragglerinjections",
        "sinj",
        (
            Column("State", "string", ".status.phase"),
            Column("Job", "string", ".spec.jobRef.name"),
            Column("Slowdown", "number", ".spec.slowdown"),
            Column("Measured", "number", ".status.measured"),
            AGE,
            Column("Message", "string", ".status.message", wide=True),
        ),
    ),
)


def crd(kind: Kind) -> Json:
    """Return one CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": ["heterotp"],
            },
            "versions": [_version(kind)],
        },
    }


def _version(kind: Kind) -> Json:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object_schema(kind)},
        "subresources": _subresources(kind),
        "additionalPrinterColumns": [column.as_json() for column in kind.columns],
    }


def _subresources(kind: Kind) -> Json:
    """Return the subresources of a kind.

    `scale` is there to be refused: the degree alone cannot change, and the messages of the spec's rules say what to do.
    Without it `kubectl scale` prints that a job which exists is not found. The status has no count for it, which is 0.
    """
    scale = {"specReplicasPath": kind.scaled, "statusReplicasPath": ".status.replicas"}
    return {"status": {}} | ({"scale": scale} if kind.scaled else {})


def _object_schema(kind: Kind) -> Json:
    """Return the schema of the whole object; the API server owns its first three fields."""
    schema = structural(kind.model)
    schema["properties"].update(apiVersion={"type": "string"}, kind={"type": "string"}, metadata={"type": "object"})
    schema["required"] = ["spec"]
    return schema


def crds() -> list[Json]:
    """Return all CustomResourceDefinitions of the group."""
    return [crd(kind) for kind in KINDS]
