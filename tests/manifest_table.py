"""The shared table of good and bad manifests (tests/data/manifests.yaml)."""

import copy
import json
from pathlib import Path
from typing import Any

import yaml

TABLE = yaml.safe_load((Path(__file__).parent / "data" / "manifests.yaml").read_text())


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
