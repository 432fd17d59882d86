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
    assert version["subresources"] == {"status": {}}
    columns = [column["name"] for column in version["additionalPrinterColumns"]]
    assert columns == ["State", "Ranks", "Iter/s", "Slowest", "Policy", "Restarts", "Age"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]
    assert fields["spec"]["properties"]["workerGroups"]["x-kubernetes-list-map-keys"] == ["name"]
    assert fields["status"]["properties"]["conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert fields["status"]["properties"]["ranks"]["x-kubernetes-list-type"] == "atomic"


def test_chart_templates_keep_the_crds():
    for crd in crds():
        text = chart_template(crd)
        assert "helm.sh/resource-policy: keep" in text
        assert text.count("{{- if") == text.count("{{- end }}") == 2
