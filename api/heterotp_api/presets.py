"""Presets of a balancing policy: values for fields that are not given.

`paper` sets the equations as they are printed in the paper, where HeteroTP has others by default (docs/algorithms.md,
Where we differ from the paper).
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from heterotp_api.schema import UNDECLARED_DEFAULT
from heterotp_api.strategies import Strategy

Preset = Literal["paper"]
PRESET_FIELD: JsonDict = {UNDECLARED_DEFAULT: True}  # a default that the API server wrote would win over a preset
_PRUNING = {"times": "measured", "gammaBy": "time", "layerRatios": "maximum", "thetaMode": "absolute"}
_SENDING = {"target": "minimum", "parts": "equal"}
PRESETS: dict[Preset, dict[Strategy, dict[str, Any]]] = {
    "paper": {
        "ZERO": {"zero": {"criterion": "average", **_PRUNING}},
        "MIG": {"mig": _SENDING},
        "SEMI": {"semi": {"betaRule": "equation2", "splitRule": "equation3", "zero": _PRUNING, "mig": _SENDING}},
    }
}


def with_preset(given: Any) -> Any:
    """Return a policy with what its preset sets for fields that are absent; malformed input is returned as it is."""
    if not isinstance(given, Mapping):
        return given
    name, strategy = given.get("preset"), given.get("strategy")
    found = (
        fields for preset, each in PRESETS.items() if preset == name for of, fields in each.items() if of == strategy
    )
    fields = next(found, None)
    return given if fields is None else _merged(given, fields)


def _merged(given: Any, fields: Mapping[str, Any]) -> Any:
    """Return given fields with others added; what is no object is left to validation."""
    if isinstance(given, BaseModel):
        given = given.model_dump(exclude_unset=True, by_alias=True)
    if not isinstance(given, Mapping):
        return given
    known = {to_camel(key) if isinstance(key, str) else key: value for key, value in given.items()}
    merged = dict(known)
    for name, value in fields.items():
        before = known.get(name)
        if isinstance(value, Mapping):
            merged[name] = dict(value) if before is None else _merged(before, value)
        elif name not in known:
            merged[name] = value
    return merged
