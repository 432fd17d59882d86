"""Kubernetes' published schemas of its own kinds, version by version, strict: an unknown field is an error."""

import json
from functools import cache

import kubernetes_validate

OLDEST = 29  # minor version; kubeVersion in Chart.yaml
_MINOR = int(kubernetes_validate.latest_version().split(".")[1])
VERSIONS = [f"1.{minor}" for minor in range(OLDEST, _MINOR + 1)]


def complaints(bodies, version):
    """Return the schema errors of these objects for a version of Kubernetes, by kind and name; empty: none."""
    found = {(each["kind"], each["metadata"]["name"]): complaint(each, version) for each in bodies}
    return {which: words for which, words in found.items() if words}


def complaint(body, version):
    """Return the schema error of one object, "" without an error."""
    return _complaint(json.dumps(body, sort_keys=True), version)


@cache  # most objects are the same in most cases
def _complaint(text, version):
    try:
        kubernetes_validate.validate(json.loads(text), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'.'.join(map(str, error.path))}: {error.message}"
    return ""
