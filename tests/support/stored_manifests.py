"""Jobs as an API server stores and serves them: with the defaults of the CRD's schema filled in."""

import copy
from pathlib import Path

import yaml
from heterotp_api.crd import crds

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
JOBS = next(crd for crd in crds() if crd["spec"]["names"]["kind"] == "HeteroTPJob")
SCHEMA = JOBS["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def filled(value, schema):
    """Return the value with defaults, as the API server fills them in: only into objects that are there."""
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name not in value and "default" in inner:
                value[name] = copy.deepcopy(inner["default"])
            if name in value:
                value[name] = filled(value[name], inner)
    elif isinstance(value, list) and "items" in schema:
        return [filled(each, schema["items"]) for each in value]
    return value


def stored(spec, name="job"):
    """Return a job with this spec as the API server serves it."""
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "generation": 1, "resourceVersion": "1"}
    body = {"apiVersion": "heterotp.io/v1alpha1", "kind": "HeteroTPJob", "metadata": metadata, "spec": spec}
    return {**filled(copy.deepcopy(body), SCHEMA), "status": {}}


def example_specs():
    """Return the spec of every HeteroTPJob among the examples, by file."""
    return {
        str(path.relative_to(EXAMPLES)): body["spec"]
        for path in sorted(EXAMPLES.rglob("*.yaml"))
        for body in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if body and body.get("kind") == "HeteroTPJob"
    }
