"""A hook of MkDocs: adds pages from outside docs/ to the site and rewrites the links between the two."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

OUTER = {  # in the repository -> in the site
    "charts/heterotp/README.md": "chart.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
SOURCES = {page: source for source, page in OUTER.items()}
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")  # the path of a relative link


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the outer pages."""
    root = Path(config.config_file_path).parent
    for source, page in OUTER.items():
        files.append(File.generated(config, page, content=(root / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links between docs/ and the outer pages."""
    return moved(markdown, page.file.src_uri)


def moved(markdown: str, page: str) -> str:
    """Return the text of a page with its links rewritten for the site; `page`: its path in the site."""
    docs = "docs/"
    source = SOURCES.get(page, docs + page)

    def leading_there(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[1]))
        inside = OUTER.get(target) or (target.removeprefix(docs) if target.startswith(docs) else None)
        return found[1] if inside is None else posixpath.relpath(inside, posixpath.dirname(page) or ".")

    return LINK.sub(leading_there, markdown)
