"""Who may connect to the pods of a gang, beside these themselves: a setting of the operator."""

from typing import Annotated, Any

from heterotp_api.base import Model
from pydantic import AfterValidator, Field

EMPTY_IS_ABSENT = ("matchLabels", "matchExpressions", "except")  # the API server leaves them out where they are empty


def _as_served(value: Any) -> Any:
    """Return a peer as the API server returns it, so that it can be compared; an empty selector stays: it selects all.

    Nulls and empty maps of labels are what it leaves out.
    """
    if isinstance(value, dict):
        present = {key: _as_served(inner) for key, inner in value.items() if inner is not None}
        return {key: inner for key, inner in present.items() if inner or key not in EMPTY_IS_ABSENT}
    return [_as_served(each) for each in value] if isinstance(value, list) else value


Peer = Annotated[dict[str, Any], Field(min_length=1), AfterValidator(_as_served)]


class NetworkPeers(Model):
    """NetworkPolicyPeers of the operator's own pods and of those that scrape; policies: whether jobs have them.

    With policies false, those that are there are removed.
    """

    policies: bool = True
    operator: list[Peer] = Field(min_length=1)  # a rule without peers would let everybody in
    scrapers: list[Peer] = Field([])
