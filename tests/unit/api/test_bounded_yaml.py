"""Files of unknown origin: every attack is refused in one line, before it costs memory or time."""

import pytest
from heterotp_api.bounded_yaml import MOST_BYTES, MOST_DIGITS, MOST_LEVELS, MOST_VALUES, _Count, read_documents
from heterotp_api.load import ManifestError, load_bodies, load_manifest
from support.manifest_table import TABLE, manifest

HEAD = "apiVersion: heterotp.io/v1alpha1\nkind: BalancingPolicy\nmetadata: {name: p}\n"


def powers(first, each):
    """Return 30 anchors, each with aliases of the one before it."""
    lines = [f"a{number}: &a{number} {each.format(number - 1)}" for number in range(1, 30)]
    return "\n".join([f"a0: &a0 {first}", *lines])


ATTACKS = {
    "bomb": (powers("x", "[*a{0}, *a{0}, *a{0}]"), "values, those that aliases repeat included"),
    "bomb of merges": (powers("{x: 1}", "{{<<: [*a{0}, *a{0}]}}"), "values, those that aliases repeat included"),
    "levels by aliases": (powers("1", "[[[[*a{0}]]]]"), f"more than {MOST_LEVELS} levels"),
    "cycle": ("a: &a [*a]", "alias *a lies within its own anchor"),
    "cycle of a map": ("a: &a {b: {c: *a}}", "alias *a lies within its own anchor"),
    "cycle of a merge": ("a: &a {<<: *a}", "alias *a lies within its own anchor"),
    "levels": ("[" * 3000 + "]" * 3000, f"more than {MOST_LEVELS} levels"),
    "levels that libyaml reads in a minute": ("{" * 100_000, f"more than {MOST_LEVELS} levels"),
    "levels of a block": ("- " * 500_000, f"more than {MOST_LEVELS} levels"),
    "digits": ("1" * (MOST_DIGITS + 1), f"more than {MOST_DIGITS} digits"),
    "hexadecimal digits": ("0x" + "f" * MOST_DIGITS, f"more than {MOST_DIGITS} digits"),
    "sixties": ("1" + ":10" * 300_000, f"more than {MOST_DIGITS} digits"),
    "no whole number": ("!!int abc", "'abc' is no int"),
    "no digit": ("!!int ''", "'' is no int"),
    "no fraction": ("!!float x", "'x' is no float"),
    "no yes": ("!!bool x", "'x' is no bool"),
    "set": ("!!set {a, b}", "the tag 'tag:yaml.org,2002:set'"),
    "object": ("!!python/object/apply:os.system [ls]", "the tag 'tag:yaml.org,2002:python"),
    "key of a list": ("? [a]\n: 1", "a key must be a string"),
    "values": (f"[{'1,' * 300_000}1]", f"more than {MOST_VALUES} values"),
    "documents": ("---\n" * 200_000, f"more than {MOST_VALUES} values"),
    "directives": ("\n".join(f"%TAG !{n}! x:" for n in range(60_000)) + "\n--- 1", "%TAG directives"),
    "length": ("a: '" + "x" * MOST_BYTES + "'", "a manifest is at most 1 MiB"),
    "half a letter": ('"\\ud800"', "is not YAML"),
}


@pytest.mark.timeout(20)  # each took minutes or all memory; now milliseconds
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_one_line(tmp_path, name):
    text, message = ATTACKS[name]
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def test_what_lies_at_the_bounds_is_read():
    assert read_documents("[" * MOST_LEVELS + "]" * MOST_LEVELS)
    assert len(read_documents(f"[{'1,' * (MOST_VALUES - 2)}1]")[0]) == MOST_VALUES - 1
    assert read_documents("9" * MOST_DIGITS) == [10**MOST_DIGITS - 1]


def test_aliases_count_as_what_they_stand_for():
    import yaml

    count = _Count()
    for event in yaml.parse("a: &a [1, [2]]\nb: [*a, *a]\n---\n- *a"):
        count.see(event)
    # 2 keys, 2 lists of 6 + 1 + 4 values, then an alias that its document does not know
    assert count.values == 1 + 2 + 4 + 1 + 8 + 1 + 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{1: a, true: b, 2001-01-01: c}", {"1": "a", "true": "b", "2001-01-01": "c"}),
        ("2001-01-01", "2001-01-01"),
        ("=", "="),
        ("{a: &x {b: 1}, c: {<<: *x, d: 2}}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ("[1e-3, 5E+2, 0x10, .5]", [0.001, 500.0, 16, 0.5]),
    ],
    ids=["keys", "date", "equals", "merge", "numbers"],
)
def test_values_are_those_of_json(text, value):
    assert read_documents(text) == [value]


def test_a_name_with_line_breaks_stays_one_line(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(HEAD + 'spec: {"a\\nb\\u001b[2J": 1}\n')
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert "spec.a\\nb\\x1b[2J: is not a known field" in str(caught.value)


def test_long_values_and_names_are_cut(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(HEAD + f"spec: {{{'k' * 900}: {'x' * 100_000}}}\n")
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert len(str(caught.value)) < len(str(path)) + 300


def test_the_shared_table_is_within_the_bounds(tmp_path):
    import yaml

    path = tmp_path / "job.yaml"
    bodies = [manifest(case) for case in TABLE["good"]]
    path.write_text(yaml.safe_dump_all(bodies))
    assert load_bodies(path) == bodies
