"""The tables of values in the chart's README, from the comments of values.yaml.

`## Title` starts a table. The comment lines directly above a value describe it. The keys of a block mapping are values;
a mapping in braces, a list or a scalar is one value.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import yaml

from reference.markdown import code, table

CHART = Path(__file__).resolve().parents[2] / "charts" / "heterotp"
BEGIN, END = "<!-- values: made by `make generate` from values.yaml -->", "<!-- end of values -->"
HEAD = ("value", "default", "meaning")


class Undocumented(Exception):
    """A value without a comment, or a README without the markers of the tables."""


def page() -> str:
    """Return the README with up-to-date tables. Raises Undocumented."""
    readme, values = (CHART / name for name in ("README.md", "values.yaml"))
    return with_tables(readme.read_text(encoding="utf-8"), tables(values.read_text(encoding="utf-8")))


def with_tables(readme: str, made: str) -> str:
    """Return a README with its tables replaced. Raises Undocumented."""
    before, _, rest = readme.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise Undocumented(f"README.md: {BEGIN} ... {END} is not there")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def tables(text: str) -> str:
    """Return the tables of a values.yaml. Raises Undocumented naming line and value."""
    lines = text.splitlines()
    titles = {n: line[3:] for n, line in enumerate(lines) if line.startswith("## ")}
    rows: dict[int | None, list[tuple[str, ...]]] = {}
    for path, line, default in _values(yaml.compose(text, Loader=yaml.SafeLoader)):
        meaning = _comment(lines, line)
        if not meaning:
            raise Undocumented(f"values.yaml:{line + 1}: {path} has no comment above it")
        title = max((n for n in titles if n < line), default=None)
        rows.setdefault(title, []).append((code(path), _shown(default), meaning))
    return "\n\n".join(
        (f"### {titles[title]}\n\n" if title is not None else "") + table(HEAD, part) for title, part in rows.items()
    )


def _values(node: yaml.Node | None, path: str = "") -> Iterator[tuple[str, int, object]]:
    """Yield path, line (from 0) and default of every value."""
    for key, value in node.value if node else ():
        here = f"{path}.{key.value}" if path else key.value
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            yield from _values(value, here)
        else:
            yield here, key.start_mark.line, yaml.SafeLoader("").construct_document(value)


def _comment(lines: list[str], line: int) -> str:
    """Return the comment directly above a line, as one line."""
    above: list[str] = []
    while line > 0 and lines[line - 1].strip().startswith("# "):
        line -= 1
        above.insert(0, lines[line].strip()[2:])
    return " ".join(above)


def _shown(default: object) -> str:
    """Return a default as JSON, or nothing for an empty string."""
    return code(json.dumps(default)) if default != "" else ""
