"""Label selectors, as in meta/v1."""

from collections.abc import Mapping

from heterotp_api.policy import LabelRequirement, LabelSelector


def matches(selector: LabelSelector | None, labels: Mapping[str, str] | None) -> bool:
    """Return whether all terms hold: an absent selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    labels = labels or {}
    wanted = (selector.match_labels or {}).items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _holds(term, labels) for term in selector.match_expressions or ()
    )


def _holds(term: LabelRequirement, labels: Mapping[str, str]) -> bool:
    there, values = term.key in labels, term.values or ()
    match term.operator:
        case "In":
            return there and labels[term.key] in values
        case "NotIn":
            return not there or labels[term.key] not in values  # an absent label is no label of the list
        case "Exists":
            return there
        case "DoesNotExist":
            return not there
