"""Markdown that MkDocs and repository viewers render in the same way."""

import re
from collections.abc import Iterable, Sequence

MADE = "<!-- Made by `make generate` from {source}; do not edit. -->"


def document(title: str, source: str, *blocks: str) -> str:
    """Return a page: heading, the comment that it is generated, blocks."""
    return "\n\n".join([f"# {title}", MADE.format(source=source), *(block for block in blocks if block)]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; bars inside cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def bullets(items: Iterable[str]) -> str:
    """Return a list."""
    return "\n".join(f"- {item}" for item in items)


def code(text: object) -> str:
    """Return a text as code."""
    return f"`{text}`"


def plain(text: str) -> str:
    """Return a text in which <name> is not HTML."""
    return text.replace("<", "&lt;")


def link(text: str, heading: str) -> str:
    """Return a link to a heading of the same page."""
    return f"[{text}](#{re.sub(r'[^a-z0-9 _-]', '', heading.lower()).replace(' ', '-')})"
