"""What one object may take of the operator's memory: beyond it, only that it was beyond is kept."""

from typing import Any

from heterotp_api.excess import MOST_OF_TEMPLATE, Bounds, excess_of

from heterotp_operator.reconcile.objects import at

Json = dict[str, Any]
MOST_OF_SPEC = Bounds(50_000, 1 << 20)
MOST_OF_REST = Bounds(5_000, 1 << 17)  # of a job's spec without the templates
MOST_OF_CHILD = Bounds(2_000, 1 << 15)  # of the spec of a Service, a PodGroup or a NetworkPolicy
MOST_LABELS = 256


def object_excess(body: Json) -> str | None:
    """Return what is beyond all measure in an object of our kinds, for people; None: nothing."""
    labels = body["metadata"].get("labels") or {}
    if len(labels) > MOST_LABELS:
        return f"metadata.labels: holds more than {MOST_LABELS} labels"
    words = excess_of(body.get("spec") or {}, MOST_OF_SPEC)
    return None if words is None else f"spec {words}"


def job_excess(body: Json) -> str | None:
    """Return what is beyond all measure in a job, for people; None: nothing."""
    if (words := object_excess(body)) is not None:
        return words
    spec = body.get("spec") or {}
    groups = at(spec, "workerGroups")
    if not isinstance(groups, list):
        groups = []
    for index, group in enumerate(groups):
        if (words := excess_of(at(group, "template"), MOST_OF_TEMPLATE)) is not None:
            return f"spec.workerGroups[{index}].template: {words}"
    rest = {**spec, "workerGroups": [without_template(group) for group in groups]} if groups else spec
    words = excess_of(rest, MOST_OF_REST)
    return None if words is None else f"spec, templates left out, {words}"


def without_template(group: Any) -> Any:
    """Return a worker group without its template, whatever it is."""
    return {key: value for key, value in group.items() if key != "template"} if isinstance(group, dict) else group
