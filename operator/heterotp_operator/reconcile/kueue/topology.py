"""Requests for nodes that are close to each other: annotations of a template, in Kueue's words."""

import json
from typing import Any

from heterotp_api import names

Body = dict[str, Any]
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
SLICE_LEVEL = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
SLICE_CONSTRAINTS = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
GROUP = "kueue.x-k8s.io/podset-group-name"
ANNOTATIONS = (REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL, SLICE_SIZE, SLICE_CONSTRAINTS, GROUP)


def topology_request(template: Body) -> Body | None:
    """Return the topologyRequest of a pod set; None where its template asks for none."""
    given = (template.get("metadata") or {}).get("annotations") or {}
    asked: Body = {}
    if given.get(REQUIRED):
        asked["required"] = given[REQUIRED]
    elif given.get(PREFERRED):
        asked["preferred"] = given[PREFERRED]
    elif given.get(UNCONSTRAINED) in ("true", "false"):
        asked["unconstrained"] = given[UNCONSTRAINED] == "true"
    asked |= _slices(given)
    if not asked:
        return None
    if given.get(GROUP) and ("required" in asked or "preferred" in asked):
        asked["podSetGroupName"] = given[GROUP]
    return {**asked, "podIndexLabel": names.LABEL_INDEX}  # neighbours in rank are neighbours in place


def _slices(given: Body) -> Body:
    """Return what holds of each slice of a pod set; what is no number or no list is left out."""
    if (constraints := _list(given.get(SLICE_CONSTRAINTS))) is not None:
        return {"podsetSliceRequiredTopologyConstraints": constraints}
    size = str(given.get(SLICE_SIZE) or "")
    if given.get(SLICE_LEVEL) and size.isascii() and size.isdecimal():
        return {"podSetSliceRequiredTopology": given[SLICE_LEVEL], "podSetSliceSize": int(size[:9])}
    return {}


def _list(text: Any) -> list[Any] | None:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and found else None
