"""The three CustomResourceDefinitions, made from the models."""

from dataclasses import dataclass
from typing import Any

from heterotp_api.base import Model
from heterotp_api.injection import StragglerInjection
from heterotp_api.job import HeteroTPJob
from heterotp_api.names import GROUP, VERSION
from heterotp_api.policy import BalancingPolicy
from heterotp_api.schema import Json, structural

Column = tuple[str, str, str]  # name, type, JSON path


@dataclass(frozen=True)
class Kind:
    """One kind of the group and how kubectl shows it."""

    model: type[Model]
    plural: str
    short: str
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        """The kind, as written in a manifest."""
        return self.model.__name__


AGE: Column = ("Age", "date", ".metadata.creationTimestamp")
KINDS = (
    Kind(
        HeteroTPJob,
        "heterotpjobs",
        "htpj",
        (
            ("State", "string", ".status.phase"),
            ("Ranks", "integer", ".spec.tensorParallelDegree"),
            ("Iter/s", "number", ".status.training.iterationsPerSecond"),
            ("Slowest", "string", ".status.slowest"),
            ("Policy", "string", ".status.balancing.policy"),
            ("Restarts", "integer", ".status.restarts"),
            AGE,
        ),
    ),
    Kind(
        BalancingPolicy,
        "balancingpolicies",
        "bpol",
        (
            ("Strategy", "string", ".spec.strategy"),
            ("Selected", "integer", ".status.selectedJobs"),
            ("Applied", "integer", ".status.appliedJobs"),
            ("Saved s", "number", ".status.savedSeconds"),
            AGE,
        ),
    ),
    Kind(
        StragglerInjection,
        "stragglerinjections",
        "sinj",
        (
            ("Phase", "string", ".status.phase"),
            ("Slowdown", "number", ".spec.slowdown"),
            ("Measured", "number", ".status.measured"),
            ("Job", "string", ".spec.jobRef.name"),
            AGE,
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
    columns: list[dict[str, Any]] = [{"name": n, "type": t, "jsonPath": p} for n, t, p in kind.columns]
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object_schema(kind)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }


def _object_schema(kind: Kind) -> Json:
    """Return the schema of the whole object; the API server owns its first three fields."""
    schema = structural(kind.model)
    schema["properties"].update(apiVersion={"type": "string"}, kind={"type": "string"}, metadata={"type": "object"})
    schema["required"] = ["spec"]
    return schema


def crds() -> list[Json]:
    """Return all CustomResourceDefinitions of the group."""
    return [crd(kind) for kind in KINDS]
