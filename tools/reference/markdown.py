"""Markdown that MkDocs and a repository's own viewer read alike."""

import re
from collections.abc import Iterable, Sequence

MADE = "<!-- Made by `make generate` from {source}; do not edit. -->"


def document(title: str, source: str, *blocks: str) -> str:
    """Return a page: its heading, the remark that it is generated, then the blocks."""
    return "\n\n".join([f"# {title}", MADE.format(source=source), *(block for block in blocks if block)]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar inside a cell is written so that it ends no cell."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def bullets(items: Iterable[str]) -> str:
    """Return a list."""
    return "\n".join(f"- {item}" for item in items)


def code(text: object) -> str:
    """Return a text as code."""
    return f"`{text}`"


def plain(text: str) -> str:
    """Return words in which no <name> is taken for HTML."""
    return text.replace("<", "&lt;")


def link(text: str, heading: str) -> str:
    """Return a link to a heading of the same page."""
    return f"[{text}](#{re.sub(r'[^a-z0-9 _-]', '', heading.lower()).replace(' ', '-')})"
