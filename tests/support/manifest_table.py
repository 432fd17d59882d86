"""The shared table of good and bad manifests (tests/data/manifests.yaml)."""

import copy
import json
from pathlib import Path
from typing import Any

import yaml

TABLE = yaml.safe_load((Path(__file__).parents[1] / "data" / "manifests.yaml").read_text())


def merged(base: Any, patch: Any) -> Any:
    """Return `base` with a JSON merge patch (RFC 7396) applied."""
    if not isinstance(patch, dict):
        return patch
    out = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key), value)
    return out


def manifest(case: dict[str, Any]) -> dict[str, Any]:
    """Return the whole object of one case."""
    base = TABLE["bases"][case["kind"]] if "kind" in case else TABLE["base"]
    whole = merged(copy.deepcopy(base), case["patch"])
    return json.loads(json.dumps(whole).replace('"<null>"', "null"))


REFUSED_FILES = TABLE["refusedFiles"]


def refused_text(case: dict[str, Any]) -> str:
    """Return the YAML text of one case: the base with one string replaced by another."""
    text = yaml.safe_dump(TABLE["base"], sort_keys=False)
    assert case["replace"] in text
    return text.replace(case["replace"], case["by"])
