"""The documentation site: a strict build, valid links, and no resources from the network."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from reference.markdown import link
from reference.outer_pages import OUTER, moved
from support.pages import DOCS, PAGES
from support.places import ROOT


class Head(HTMLParser):
    """Collects the resources that a page loads."""

    def __init__(self):
        super().__init__()
        self.loaded = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "link" and given.get("rel") in ("stylesheet", "preconnect", "preload", "dns-prefetch", "icon"):
            self.loaded.append(given["href"])
        if tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.loaded.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; a strict build fails on invalid links and anchors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]  # --quiet would hide warnings
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # no banner of the theme
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built(site):
    sources = [str(page.relative_to(DOCS)) for page in PAGES] + list(OUTER.values())
    assert [page for page in sources if not (site / page).with_suffix(".html").is_file()] == []


def test_nothing_is_loaded_from_the_network(site):
    for page in site.rglob("*.html"):
        head = Head()
        head.feed(page.read_text())
        assert head.loaded, "the theme's own files"
        assert [path for path in head.loaded if re.match(r"(https?:)?//", path)] == [], page


def test_style_sheets_load_no_fonts(site):
    loaded = [found for sheet in site.rglob("*.css") for found in re.findall(r"url\((.{0,80})", sheet.read_text())]
    assert [path for path in loaded if re.match(r"""['"]?(https?:)?//""", path)] == []


def test_no_table_list_or_block_is_left_as_text(site):
    """Markdown needs an empty line before lists and tables, and four spaces before the content of an item."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        paragraphs = re.findall(r"<p>(.*?)</p>", text, flags=re.DOTALL)
        assert [text for text in paragraphs if re.search(r"^(- |\d\. |\|)", text, flags=re.MULTILINE)] == [], page
        assert re.findall(r"<code>(?:sh|yaml|json|promql|text|python)\n", text) == [], page
        assert "```" not in text, page


@pytest.mark.parametrize("source", ["README.md", *OUTER])
def test_links_of_files_outside_of_docs_lead_somewhere(source):
    path = ROOT / source
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", path.read_text()):
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), f"{source}: {target}"
        if anchor:
            assert f"#{anchor}" in anchors(found), f"{source}: {target}"


def anchors(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [link("", heading)[3:-1] for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)]


def test_links_over_the_edge_of_docs_are_moved():
    assert moved("[a](../charts/heterotp/README.md#values)", "install.md") == "[a](chart.md#values)"
    assert (
        moved("[a](../../docs/operating.md#s) [b](../../LICENSE)", "chart.md")
        == "[a](operating.md#s) [b](../../LICENSE)"
    )
    assert moved("[a](../operating.md) [b](#here) [c](https://x.org/a)", "runbooks/x.md") == (
        "[a](../operating.md) [b](#here) [c](https://x.org/a)"
    )
