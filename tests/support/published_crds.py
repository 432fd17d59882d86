"""Other projects' kinds as CRDs: the published ones if available, else CRDs made from our tables of their fields.

python tests/support/published_crds.py TABLE DIRECTORY     compares a table with the CRDs in a directory
"""

import os
import sys
from pathlib import Path

import yaml

TABLES = Path(__file__).parents[1] / "data"  # gang_kinds.yaml, monitor_kinds.yaml
ANY = {"x-kubernetes-preserve-unknown-fields": True}
QUANTITY = {"x-kubernetes-int-or-string": True}


def published(table):
    """Return the CRDs of a table's kinds: those in HETEROTP_PUBLISHED_CRDS, else CRDs made from the table."""
    directory = os.environ.get("HETEROTP_PUBLISHED_CRDS")
    if not directory:
        return [_crd(row) for row in rows(table)]
    kinds = {(row["kind"], row["of"].partition("/")[0]) for row in rows(table)}
    return [crd for crd in read(Path(directory)) if (crd["spec"]["names"]["kind"], crd["spec"]["group"]) in kinds]


def closed_schemas(table):
    """Return apiVersion and kind -> a JSON schema of its spec with only the fields of the table."""
    return {(row["of"], row["kind"]): _closed(_schema(row["spec"])) for row in rows(table)}


def _closed(schema):
    if schema is QUANTITY:
        return {"type": ["integer", "string"]}
    out = {key: value for key, value in schema.items() if key in ("type", "pattern", "required")}
    if "properties" in schema:
        out["properties"] = {name: _closed(inner) for name, inner in schema["properties"].items()}
        out["additionalProperties"] = False
    for part in ("items", "additionalProperties"):
        if part in schema:
            out[part] = _closed(schema[part])
    return out


def rows(table):
    return yaml.safe_load((TABLES / f"{table}.yaml").read_text())


def read(directory):
    """Return the CRDs of a directory without conversion webhooks, which do not run in tests."""
    found = [yaml.safe_load(path.read_text()) for path in sorted(directory.glob("*.yaml"))]
    for crd in found:
        crd["spec"]["conversion"] = {"strategy": "None"}
    return found


def _crd(row):
    group, _, version = row["of"].partition("/")
    schema = {"type": "object", "properties": {"spec": _schema(row["spec"])}}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if row.get("status"):  # of any content, but for conditions, of which each has its own field manager
        item = {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"], **ANY}
        by_type = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
        conditions = {"type": "array", "items": item, **by_type}
        schema["properties"]["status"] = {"type": "object", "properties": {"conditions": conditions}, **ANY}
        served["subresources"] = {"status": {}}
    plural, kind = row["plural"], row["kind"]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    # a group under k8s.io asks for the review that approved it; this is no such thing
    metadata = {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}}
    spec = {"group": group, "names": names, "scope": row["scope"], "versions": [served]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


def _schema(given):
    """Return the schema of a field of the table."""
    if isinstance(given, list):
        return {"type": "array", "items": _schema(given[0])}
    if given == "Quantity":
        return QUANTITY
    if isinstance(given, str):
        kind, _, pattern = given.partition(" ")
        return {"type": kind} | ({"pattern": pattern} if pattern else {})
    if set(given) == {"any"}:
        return {"type": "object", "additionalProperties": _schema(given["any"])}
    required = [name.rstrip("!") for name in given if name.endswith("!")]
    body = {"type": "object", "properties": {name.rstrip("!"): _schema(inner) for name, inner in given.items()}}
    return body | ({"required": required} if required else {})


def disagreements(wanted, schema, path):
    """Yield differences between our field and the published one: absent, another type, required in one of them."""
    for key in ("type", "x-kubernetes-int-or-string"):
        if wanted.get(key) != schema.get(key) and not (key == "type" and schema.get("x-kubernetes-int-or-string")):
            yield f"{path}: {key} {wanted.get(key)} here, {schema.get(key)} there"
    if "pattern" in wanted and wanted["pattern"] != schema.get("pattern"):
        yield f"{path}: pattern {wanted['pattern']} here, {schema.get('pattern')} there"
    ours = set(wanted.get("properties", ()))
    for name in sorted(set(schema.get("required", ())) - set(wanted.get("required", ()))):
        yield f"{path}.{name}: required there"
    for name in sorted(set(wanted.get("required", ())) - set(schema.get("required", ()))):
        yield f"{path}.{name}: not required there"
    for name in sorted(ours):
        inner = schema.get("properties", {}).get(name)
        if inner is None:
            yield f"{path}.{name}: not there"
        else:
            yield from disagreements(wanted["properties"][name], inner, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if part in wanted:
            yield from disagreements(wanted[part], schema.get(part) or {}, f"{path}[]")


def compare(table, directory):
    """Return the differences between a table and the CRDs of a directory."""
    served = {
        (f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]): (crd, version)
        for crd in read(directory)
        for version in crd["spec"]["versions"]
        if version["served"]
    }
    wrong = []
    for row in rows(table):
        crd, version = served.get((row["of"], row["kind"]), ({}, {}))
        if not version:
            wrong.append(f"{row['of']} {row['kind']}: not served")
            continue
        if crd["spec"]["scope"] != row["scope"]:
            wrong.append(f"{row['kind']}: scope {crd['spec']['scope']}")
        schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        wrong += disagreements(_schema(row["spec"]), schema, f"{row['of']} {row['kind']} spec")
    return wrong


if __name__ == "__main__":
    problems = compare(sys.argv[1], Path(sys.argv[2]))
    print("\n".join(problems) or f"all {len(rows(sys.argv[1]))} kinds are as in the table")
    sys.exit(bool(problems))
