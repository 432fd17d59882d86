"""Labels and annotations that are Kueue's own."""

from typing import Any

PREFIX = "kueue.x-k8s.io/"
POD_GROUP = "kueue.x-k8s.io/pod-group-name"


def without_kueues(given: dict[str, Any]) -> dict[str, Any]:
    """Return labels or annotations without Kueue's own: they would make Kueue manage the pods a second time."""
    return {key: value for key, value in given.items() if not key.startswith(PREFIX)}
