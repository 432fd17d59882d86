"""Random manifests for hypothesis: good ones of which some values are replaced, removed or added.

New values are any JSON, or lie at the limits that the CRD's schema sets for their field.
"""

import json

from heterotp_api.crd import KINDS, crd
from hypothesis import strategies as st
from support.manifest_table import TABLE, manifest

SCHEMAS = {kind.name: crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}
GOOD = [manifest(case) for case in TABLE["good"]]
TEXTS = st.text(max_size=20) | st.sampled_from(["", "trainer", "../../x", "a\nb", "\0", "-", "x" * 300, "1e400"])
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**18, 2**63, 10**400, -1, 0, 1e308, 5e-324])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)
WORDS = ("a", "A", "a-b", "a.b", "-a", "a/b", "/data", "/data/../etc", "/proc/1", "//x", "data", "é", "a b", "a\n", "0")


def places(value, above=()):
    """Yield the path of every value below a manifest."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*above, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*above, key))


def schema_at(kind, path):
    """Return the schema of a path; {} where it has none."""
    schema = SCHEMAS.get(kind, {})
    for part in path:
        below = schema.get("items") if isinstance(part, int) else schema.get("properties", {}).get(part)
        schema = below or schema.get("additionalProperties") or {}
    return schema


def limits(schema):
    """Return values at both sides of the limits of a number or a text."""
    ends = [schema[name] for name in ("minimum", "maximum") if name in schema]
    numbers = [0, 1, 2, *(end + step for end in ends for step in (-1, 0, 1)), *(end * 1.5 for end in ends)]
    lengths = [schema[name] for name in ("minLength", "maxLength") if schema.get(name, 9999) < 2000]
    texts = ["a" * max(0, length + step) for length in lengths for step in (-1, 0, 1)]
    return {"integer": numbers, "number": [*numbers, 0.5, 1e-9], "string": [*WORDS, *texts]}.get(schema["type"], [])


@st.composite
def values_of(draw, schema, levels=4):
    """A value of the schema's type, at its limits or a little beyond."""
    kind = schema.get("type")
    if schema.get("enum"):
        return draw(st.sampled_from([*schema["enum"], "other"]))
    if kind == "boolean":
        return draw(st.booleans())
    if kind == "array" and levels:
        most = min(schema.get("maxItems", 3) + 1, 4)
        return draw(st.lists(values_of(schema["items"], levels - 1), max_size=most))
    fields = schema.get("properties")
    if kind == "object" and fields and levels:
        required = schema.get("required", [])
        chosen = {*draw(st.lists(st.sampled_from(sorted(fields)), max_size=3)), *required[: draw(st.integers(0, 9))]}
        return {name: draw(values_of(fields[name], levels - 1)) for name in sorted(chosen)}
    known = limits(schema) if kind else []
    return draw(st.sampled_from(known)) if known else draw(VALUES)


@st.composite
def damaged(draw):
    """A good manifest with one to three values replaced, removed or added."""
    body = json.loads(json.dumps(draw(st.sampled_from(GOOD))))
    kind = body["kind"]
    for _ in range(draw(st.integers(1, 3))):
        if not body:
            break
        *above, last = draw(st.sampled_from(list(places(body))))
        holder = body
        for key in above:
            holder = holder[key]
        fields = sorted(schema_at(kind, above).get("properties", {}))
        match draw(st.sampled_from(["replace", "limit", "field", "field", "remove", "add"])):
            case "remove":
                del holder[last]
            case "add" if isinstance(holder, dict):
                holder[draw(TEXTS)] = draw(VALUES)
            case "field" if isinstance(holder, dict) and fields:
                name = draw(st.sampled_from(fields))
                holder[name] = draw(values_of(schema_at(kind, (*above, name))))
            case "limit" | "field":
                holder[last] = draw(values_of(schema_at(kind, (*above, last))))
            case _:
                holder[last] = draw(VALUES)
    return body
