"""The page about the fields of the three kinds, from the schemas of their CRDs."""

import json
from collections.abc import Iterator

from heterotp_api.crd import KINDS, Kind, crd
from heterotp_api.names import API_VERSION
from heterotp_api.schema import Json

from reference.markdown import bullets, code, document, link, plain, table

SOURCE = "the models in api/heterotp_api"
HEAD = ("field", "type", "default", "must be", "meaning")
INTRO = f"""\
All three are namespaced kinds of `{API_VERSION}`. The API server refuses an object with an unknown field, a wrong type
or a violated rule; `heterotp validate FILE` reports the same errors without a cluster. [The
algorithms](../algorithms.md) describe the strategies and their fields, [concepts](../concepts.md) the terms.
`kubectl explain htpj.spec --recursive` shows these fields in a terminal.

A default of `-` means that the field is absent. `required` fields have no default."""
Objects = dict[str, Json]  # by path, e.g. HeteroTPJob.spec.workerGroups[]


def page() -> str:
    """Return the page."""
    found = {kind: dict(_objects(kind.name, _schema(kind))) for kind in KINDS}
    owners = _owners(list(found.values()))
    return document("Fields of the three kinds", SOURCE, INTRO, *(_kind(kind, found[kind], owners) for kind in KINDS))


def _schema(kind: Kind) -> Json:
    schema: Json = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _objects(path: str, node: Json) -> Iterator[tuple[str, Json]]:
    """Yield a node and every object with fields below it, with their paths."""
    if node.get("type") == "array":
        yield from _objects(f"{path}[]", node["items"])
    elif node.get("properties"):
        yield path, node
        for name, inner in node["properties"].items():
            yield from _objects(f"{path}.{name}", inner)


def _owners(kinds: list[Objects]) -> dict[str, str]:
    """Return for each object's content the path nearest to a kind: it is described there, other paths link to it."""
    owners: dict[str, str] = {}
    for path, node in (item for objects in kinds for item in objects.items()):
        owners[_content(node)] = min(owners.get(_content(node), path), path, key=lambda each: each.count("."))
    return owners


def _content(node: Json) -> str:
    keys = ("properties", "required", "x-kubernetes-validations")
    return json.dumps([node.get(key) for key in keys], sort_keys=True)


def _kind(kind: Kind, objects: Objects, owners: dict[str, str]) -> str:
    schema = objects[kind.name]
    usual, wide = (", ".join(c.name for c in kind.columns if c.wide == more) for more in (False, True))
    shown = f"`kubectl get {kind.short}` shows: {usual}; with `-o wide` also: {wide}."
    mine = {path: node for path, node in objects.items() if path != kind.name and owners[_content(node)] == path}
    sections = [_section(path, node, owners) for path, node in mine.items()]
    return "\n\n".join([f"## {kind.name}", plain(schema["description"]), shown, *_rules(schema), *sections])


def _section(path: str, node: Json, owners: dict[str, str]) -> str:
    required = node.get("required", ())
    rows = [_row(path, name, inner, name in required, owners) for name, inner in node["properties"].items()]
    return "\n\n".join([f"### `{path}`", plain(node.get("description", "")), table(HEAD, rows), *_rules(node)])


def _rules(node: Json) -> list[str]:
    messages = [plain(rule["message"]) for rule in node.get("x-kubernetes-validations", ())]
    return ["Rules:\n\n" + bullets(messages)] if messages else []


def _row(path: str, name: str, node: Json, required: bool, owners: dict[str, str]) -> tuple[str, ...]:
    default = "required" if required else _default(node)
    described = plain(node.get("description", ""))
    return code(name), _type(f"{path}.{name}", node, owners), default, ", ".join(_bounds(node)), described


def _type(path: str, node: Json, owners: dict[str, str]) -> str:
    """Return the type in words; an object links to its fields."""
    if node.get("type") == "array":
        return f"list of {_type(f'{path}[]', node['items'], owners)}"
    if node.get("properties"):
        return link("object", owners[_content(node)])
    if node.get("properties") == {}:
        return "empty object"
    if "additionalProperties" in node:
        return f"map of {_type(path, node['additionalProperties'], owners)}"
    return "time" if node.get("format") == "date-time" else str(node["type"])


def _default(node: Json) -> str:
    if "default" not in node:
        return "-"
    value = _without_defaults(node["default"], node)
    return "its defaults" if value == {} and "properties" in node else code(json.dumps(value))


def _without_defaults(value: object, node: Json) -> object:
    """Return a default without the defaults of the object's fields."""
    if not isinstance(value, dict):
        return value
    fields = node.get("properties", {})
    kept = {key: _without_defaults(inner, fields.get(key, {})) for key, inner in value.items()}
    return {key: inner for key, inner in kept.items() if inner != {} and inner != fields.get(key, {}).get("default")}


def _bounds(node: Json) -> Iterator[str]:
    """Yield the constraints on a value other than its type."""
    if "enum" in node:
        yield "one of " + ", ".join(code(value or '""') for value in node["enum"])
    yield from _range(node)
    if "pattern" in node:
        yield f"like {code(node['pattern'])}"
    if node.get("format") != "date-time" and "maxLength" in node:
        yield (
            f"{node['minLength']} to {node['maxLength']} characters"
            if "minLength" in node
            else (f"at most {node['maxLength']} characters")
        )
    if "maxItems" in node:
        yield f"{node.get('minItems', 0)} to {node['maxItems']} items"
    if node.get("type") == "array":
        yield from (f"each {bound}" for bound in _bounds(node["items"]))


def _range(node: Json) -> Iterator[str]:
    least, most = node.get("minimum"), node.get("maximum")
    if least is not None and most is not None and not node.get("exclusiveMinimum"):
        yield f"{_number(least)} to {_number(most)}"
        return
    if least is not None:
        yield f"{'>' if node.get('exclusiveMinimum') else '>='} {_number(least)}"
    if most is not None:
        yield f"<= {_number(most)}"


def _number(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e6 else str(int(value))
