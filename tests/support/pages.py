"""The pages of the documentation, and readers of their code blocks."""

import re

import pytest
from support.places import ROOT

DOCS, RUNBOOKS = ROOT / "docs", ROOT / "docs" / "runbooks"
PAGES = sorted(DOCS.rglob("*.md"))
PROSE = [page for page in PAGES if page.parent.name != "reference"]  # written by hand
OUTSIDE = [ROOT / "README.md", ROOT / "charts" / "heterotp" / "README.md"]


def each_of(pages):
    """Run a test for every page."""
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page, language):
    """Return the code blocks of a language."""
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def shell_lines(page):
    """Yield the commands of a page: lines of its sh blocks, and inline code of our commands."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            yield from re.split(r"\s(?:&&|\||;)\s", line.strip())
    prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`((?:kubectl )?heterotp [a-z][^`]*)`", prose)
