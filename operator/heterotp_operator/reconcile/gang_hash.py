"""What decides on a restart: hashes of what the user wrote, which every version of the operator computes alike.

A value that equals its default does not count, whoever filled it in (the user, the API server, the model): a field
that a newer version adds with a default changes no hash. The first version hashed the defaults of its own fields, too;
FIRST_DEFAULTS holds them, so that gangs which that version made keep their attempt, and a rollback keeps it as well.
It never changes: new fields and new defaults do not belong there.
"""

import hashlib
import json
from typing import Any

from heterotp_api import names
from heterotp_api.base import Model
from heterotp_api.job import HeteroTPJobSpec

from heterotp_operator.reconcile.objects import at

Body = dict[str, Any]
FIRST_DEFAULTS: Body = {
    "workerGroups": {"pods": 1, "processesPerPod": 1, "device": {"type": "auto"}, "template": {}},  # of each
    "training": {
        "model": {"preset": "vit-tiny"},
        "data": {"name": "digits"},
        "batchSize": 64,
        "learningRate": 0.003,
        "schedule": "constant",
        "weightDecay": 0.0,
        "warmupIterations": 0,
        "precision": "fp32",
        "seed": 0,
        "recompute": False,
        "accumulate": 1,
        "collectiveTimeoutSeconds": 300,
    },
    "checkpoint": {"everySeconds": 600, "keep": 2},
    "rendezvous": {"port": 29500},
    "metrics": {"port": 9400, "level": "full"},
}


def gang_hashes(spec: HeteroTPJobSpec, default_image: str) -> tuple[str, str]:
    """Return two hashes of 10 hex digits: what only a suspended job may change, and all that an attempt freezes.

    default_image: of a container that names none.
    """
    given = _given(spec)
    groups = [_over(FIRST_DEFAULTS["workerGroups"], group) for group in given["workerGroups"]]
    training, checkpoint, rendezvous, metrics = (
        _part(given, name) for name in ("training", "checkpoint", "rendezvous", "metrics")
    )
    shape: list[Any] = [[group[key] for key in ("name", "pods", "processesPerPod")] for group in groups]
    shape += [rendezvous["port"], metrics["port"], *((training or {}).get(key) for key in ("model", "data"))]
    shape += [(checkpoint or {}).get(key) for key in ("persistentVolumeClaim", "path")]
    frozen: list[Any] = [groups, training, checkpoint, rendezvous, metrics]
    if any(_names_no_image(group["template"]) for group in groups):
        frozen.append(default_image)
    return _hash(shape), _hash(frozen)


def _given(model: Model) -> Body:
    """Return what differs from the defaults."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)


def _part(given: Body, name: str) -> Any:
    """Return a part of the spec with the first version's defaults; None where it is absent and has no default."""
    if name in ("training", "checkpoint") and name not in given:
        return None
    return _over(FIRST_DEFAULTS[name], given.get(name, {}))


def _over(defaults: Body, given: Body) -> Body:
    """Return the given values over the defaults; a model that is given has no preset by default."""
    merged = {**defaults, **given}
    for name in ("data", "device"):
        if name in defaults and name in given:
            merged[name] = {**defaults[name], **given[name]}
    return merged


def _names_no_image(template: Body) -> bool:
    containers = at(template, "spec", "containers")
    listed = containers if isinstance(containers, list) else ()
    return not any(at(each, "name") == names.CONTAINER and at(each, "image") for each in listed)


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]
