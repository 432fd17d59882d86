"""`chart_readme.py [--check]`: write the tables of values in the chart's README from the comments of values.yaml.

`## Title` starts a table. The comment lines right above a value say what it means. A block mapping is no value but its
keys are; a mapping in braces, a list or a scalar is one.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

CHART = Path(__file__).resolve().parents[1] / "charts" / "heterotp"
BEGIN, END = "<!-- values: made by `make generate` from values.yaml -->", "<!-- end of values -->"
HEAD = "| value | default | meaning |\n|---|---|---|\n"


class Undocumented(Exception):
    """A value that no comment explains."""


def leaves(node: yaml.Node | None, path: str = "") -> Iterator[tuple[str, int, object]]:
    """Yield path, line (from 0) and default of every value."""
    for key, value in node.value if node else ():
        here = f"{path}.{key.value}" if path else key.value
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            yield from leaves(value, here)
        else:
            yield here, key.start_mark.line, yaml.SafeLoader("").construct_document(value)


def meaning(lines: list[str], line: int) -> str:
    """Return the comment right above a line, as one line."""
    above: list[str] = []
    while line > 0 and lines[line - 1].strip().startswith("# "):
        line -= 1
        above.insert(0, lines[line].strip()[2:])
    return " ".join(above)


def tables(text: str) -> str:
    """Return the tables of a values.yaml. Raises Undocumented naming line and value."""
    lines = text.splitlines()
    titles = {n: line[3:] for n, line in enumerate(lines) if line.startswith("## ")}
    out, last = "", None
    for path, line, default in leaves(yaml.compose(text, Loader=yaml.SafeLoader)):
        said = meaning(lines, line)
        if not said:
            raise Undocumented(f"values.yaml:{line + 1}: {path} has no comment above it")
        title = max((n for n in titles if n < line), default=None)
        if title != last:
            out += ("\n" if out else "") + (f"### {titles[title]}\n\n" if title is not None else "") + HEAD
            last = title
        out += f"| `{path}` | {shown(default)} | {said.replace('|', chr(92) + '|')} |\n"
    return out


def shown(default: object) -> str:
    """Return a default as JSON; an empty text is nothing at all."""
    return f"`{json.dumps(default)}`" if default != "" else ""


def with_tables(readme: str, made: str) -> str:
    """Return a README with its tables replaced."""
    before, _, rest = readme.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise Undocumented(f"README.md: {BEGIN} ... {END} is not there")
    return f"{before}{BEGIN}\n\n{made}\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Write the README, or with --check say whether it is up to date."""
    readme = CHART / "README.md"
    old = readme.read_text(encoding="utf-8")
    try:
        new = with_tables(old, tables((CHART / "values.yaml").read_text(encoding="utf-8")))
    except Undocumented as error:
        print(error, file=sys.stderr)
        return 1
    if arguments == ["--check"]:
        if new != old:
            print(f"{readme}: the tables of values are out of date: run make generate", file=sys.stderr)
        return int(new != old)
    readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
