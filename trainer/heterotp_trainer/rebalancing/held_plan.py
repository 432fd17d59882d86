"""Plan and policy as a checkpoint holds them, so that a resumed run prunes and migrates the same columns."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from heterotp_api.policy import BalancingSettings
from pydantic import TypeAdapter, ValidationError

from heterotp_trainer.errors import InputError
from heterotp_trainer.plans.ownership import UNKNOWN_OWNERSHIP
from heterotp_trainer.plans.work_plan import WorkPlan

_POLICY, _PLAN = TypeAdapter(BalancingSettings), TypeAdapter(WorkPlan)


@dataclass(frozen=True)
class HeldPlan:
    """policy: in force. plan: None where it was made under another policy. unit_plan: its hash.

    observations: how many were made; the plan counts time in them.
    """

    policy: BalancingSettings
    plan: WorkPlan | None
    unit_plan: str
    grains: list[int]
    observations: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON-ready form, without what an attempt measures anew: owners of units, prices of transfers."""
        plan = None
        if self.plan is not None and self.plan.settings == self.policy:
            kept = replace(UNKNOWN_OWNERSHIP, alternations=self.plan.ownership.alternations)
            bare = replace(self.plan, ownership=kept, link=None, settings=None)
            plan = _PLAN.dump_python(bare, mode="json")
        policy = _POLICY.dump_python(self.policy, mode="json", by_alias=True)
        return {
            "policy": policy,
            "plan": plan,
            "unitPlan": self.unit_plan,
            "grains": self.grains,
            "observations": self.observations,
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> "HeldPlan":
        """Return the plan of `to_json`; raises ValueError where it is malformed."""
        try:
            policy = _POLICY.validate_python(state["policy"])
            plan = None if state["plan"] is None else replace(_PLAN.validate_python(state["plan"]), settings=policy)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise InputError(f"the checkpoint's work plan: {place}: {first['msg']}") from None
        return cls(policy, plan, state["unitPlan"], state["grains"], state["observations"])
