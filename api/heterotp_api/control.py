"""The control document: policy and injections that the operator, or a user locally, gives a running trainer."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from heterotp_api.base import Model, Rule
from heterotp_api.injection import Slowdown
from heterotp_api.policy import BalancingSettings
from heterotp_api.rank_trace import TraceRequest
from heterotp_api.strategy_blocks import Rank, unique

SCHEMA_VERSION = 1
LOSSLESS_AUTO = BalancingSettings(strategy="AUTO", max_pruned_share=0.0)


class ControlInjection(Slowdown):
    """One injection, its targets resolved to ranks; `uid` identifies it, also after a restart."""

    uid: str = Field(min_length=1, max_length=253)
    name: str = Field("", max_length=253)
    ranks: Annotated[list[Rank], Field(min_length=1, max_length=16384), AfterValidator(unique)]


def control_injection(name: str, uid: str | None, spec: Slowdown, ranks: list[int]) -> ControlInjection:
    """Return an injection as the trainer reads it; its name replaces the uid where no API server gave one."""
    slowdown = {field: getattr(spec, field) for field in Slowdown.model_fields}
    return ControlInjection(uid=uid or name, name=name, ranks=ranks, **slowdown)


class ControlDocument(Model):
    """File `control.json`; `leaseSeconds` absent means that injections need no renewal."""

    schema_version: Literal[1] = 1
    generation: int = Field(ge=0, le=2**53)  # travels as a float64
    lease_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)  # JSON carries no infinity to other ranks
    balancing: BalancingSettings = LOSSLESS_AUTO
    injections: list[ControlInjection] = Field([], max_length=1000)
    trace: TraceRequest | None = None  # of local runs

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "each injection needs a uid of its own",
            holds=lambda d: len({injection.uid for injection in d.injections}) == len(d.injections),
            field="injections",
        ),
    )
