"""The control document: what the operator (or a user, locally) tells a running trainer."""

from typing import Any, Literal

from pydantic import Field

from heterotp_api.base import Model
from heterotp_api.policy import BalancingSettings

SCHEMA_VERSION = 1
LOSSLESS_AUTO = BalancingSettings(strategy="AUTO", max_pruned_share=0.0)


class ControlDocument(Model):
    """File `control.json`; `leaseSeconds` absent means that injections need no renewal."""

    schema_version: Literal[1] = 1
    generation: int = Field(ge=0)
    lease_seconds: float | None = Field(None, gt=0)
    balancing: BalancingSettings = LOSSLESS_AUTO
    injections: list[dict[str, Any]] = Field([], max_length=1000)
