"""The converter from models to structural schemas, trap by trap."""

from typing import ClassVar, Literal

import pytest
from heterotp_api.base import Model, Rule
from heterotp_api.crd import crds
from heterotp_api.generate import chart_template
from heterotp_api.schema import structural
from pydantic import Field


class Inner(Model):
    """An inner object."""

    size: int = Field(1, ge=1)
    rules: ClassVar[tuple[Rule, ...]] = (Rule("size is odd", "self.size % 2 == 1", lambda i: i.size % 2 == 1, "size"),)


class Outer(Model):
    """All traps at once."""

    maybe: float | None = Field(None, gt=0, lt=5)
    kind: Literal["one"] = "one"
    pair: tuple[int, int] = (1, 2)
    inner: Inner = Inner()
    inners: list[Inner] = Field([], max_length=3)
    words: dict[str, str] | None = None


class Unlike(Model):
    """A union that has no structural form."""

    either: int | str = 0


SCHEMA = structural(Outer)
FIELDS = SCHEMA["properties"]


def test_nullable_becomes_absent_and_exclusive_bounds_become_booleans():
    assert FIELDS["maybe"] == {
        "type": "number",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 5,
        "exclusiveMaximum": True,
    }


def test_constants_become_enums_and_tuples_become_arrays():
    assert FIELDS["kind"] == {"type": "string", "enum": ["one"], "default": "one"}
    assert FIELDS["pair"]["items"] == {"type": "integer", "format": "int64"}


def test_references_are_written_out_with_defaults_and_rules():
    assert FIELDS["inner"]["default"] == {"size": 1}
    for inner in (FIELDS["inner"], FIELDS["inners"]["items"]):
        assert inner["properties"]["size"]["minimum"] == 1
        assert inner["x-kubernetes-validations"] == [
            {"rule": "self.size % 2 == 1", "message": "size is odd", "fieldPath": ".size"}
        ]


def test_maps_keep_their_value_type():
    assert FIELDS["words"]["additionalProperties"] == {"type": "string"}


def test_unions_are_refused_by_name():
    with pytest.raises(ValueError, match="either: a union of 2 types"):
        structural(Unlike)


def _keys(node):
    if isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from _keys(value)
    elif isinstance(node, list):
        for item in node:
            yield from _keys(item)


def test_crds_hold_no_keyword_that_a_structural_schema_forbids():
    for crd in crds():
        found = set(_keys(crd["spec"]["versions"][0]["schema"]))
        assert not found & {"$ref", "$defs", "anyOf", "oneOf", "const", "title", "prefixItems", "discriminator"}


def test_each_kind_has_status_short_name_and_columns():
    by_kind = {crd["spec"]["names"]["kind"]: crd["spec"] for crd in crds()}
    assert {kind: spec["names"]["shortNames"] for kind, spec in by_kind.items()} == {
        "HeteroTPJob": ["htpj"],
        "BalancingPolicy": ["bpol"],
        "StragglerInjection": ["sinj"],
    }
    version = by_kind["HeteroTPJob"]["versions"][0]
    assert [set(spec["versions"][0]["subresources"]) for spec in by_kind.values()] == [
        {"status", "scale"},
        *[{"status"}] * 2,
    ]
    fields = version["schema"]["openAPIV3Schema"]["properties"]
    assert fields["spec"]["properties"]["workerGroups"]["x-kubernetes-list-map-keys"] == ["name"]
    assert fields["status"]["properties"]["conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert fields["status"]["properties"]["ranks"]["x-kubernetes-list-type"] == "atomic"


def versions():
    """Return the only version of each kind, by the kind's name."""
    return {crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0] for crd in crds()}


COLUMNS = {
    "HeteroTPJob": (
        ["State", "Waiting", "Ranks", "Iter/s", "Slowest", "Restarts", "Age"],
        ["Iteration", "Loss", "Policy", "Strategy", "Queue"],
    ),
    "BalancingPolicy": (["Strategy", "Selected", "Applied", "Reason", "Saved-s", "Age"], ["Accepted", "Conflict"]),
    "StragglerInjection": (["State", "Job", "Slowdown", "Measured", "Age"], ["Message"]),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns(kind):
    columns = versions()[kind]["additionalPrinterColumns"]
    split = tuple([c["name"] for c in columns if c.get("priority", 0) == priority] for priority in (0, 1))
    assert split == COLUMNS[kind]
    assert not any(" " in column["name"] for column in columns)  # scripts cut lines at blanks


def at_path(schema, path):
    """Return the type of the field that the JSON path of a column names; a filter takes an item of a list."""
    for part in path.removeprefix(".").replace("[", ".[").split("."):
        if part.startswith("[?(@"):
            schema = schema["items"]
        elif not part.startswith("type=="):
            schema = schema["properties"][part]
    return schema["type"]


@pytest.mark.parametrize("kind", COLUMNS)
def test_each_column_shows_a_field_of_its_type(kind):
    version = versions()[kind]
    for column in version["additionalPrinterColumns"]:
        if not column["jsonPath"].startswith(".metadata"):  # whose schema is the API server's
            found = at_path(version["schema"]["openAPIV3Schema"], column["jsonPath"])
            assert found == column["type"], column


def fields(node, path):
    """Yield path and schema of every field below a node, as `kubectl explain --recursive` lists them."""
    for name, each in node.get("properties", {}).items():
        yield f"{path}.{name}", each
        yield from fields(each, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(node.get(inner), dict):
            yield from fields(node[inner], path)


GIVEN_BY_THE_SERVER = {"apiVersion", "kind", "metadata"}  # it describes these three itself


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_field_is_described_in_a_sentence(kind):
    schema = versions()[kind]["schema"]["openAPIV3Schema"]
    described = {path: each.get("description", "") for path, each in fields(schema, kind)}
    for name in GIVEN_BY_THE_SERVER:
        del described[f"{kind}.{name}"]
    assert len(described) > 30
    assert [path for path, words in described.items() if not (len(words) > 5 and words.endswith("."))] == []


def test_chart_templates_keep_the_crds():
    for crd in crds():
        text = chart_template(crd)
        assert "helm.sh/resource-policy: keep" in text
        assert text.count("{{- if") == text.count("{{- end }}") == 2
