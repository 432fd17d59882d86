"""The documentation: it builds strictly, loads nothing from the network, and says nothing that the code does not."""

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from html.parser import HTMLParser

import promql_parser
import pytest
import yaml
from click.testing import CliRunner
from heterotp_api.crd import crds
from heterotp_cli.main import group as heterotp
from heterotp_cli.plugin import group as kubectl_heterotp
from heterotp_operator.settings import Settings
from places import ROOT
from reference import cli, kinds, metrics
from reference.markdown import link
from reference.outer_pages import OUTER, moved

DOCS, RUNBOOKS = ROOT / "docs", ROOT / "docs" / "runbooks"
PAGES = sorted(DOCS.rglob("*.md"))
PROSE = [page for page in PAGES if page.parent.name != "reference"]  # written by hand
ALERTS = sorted(page.stem for page in RUNBOOKS.glob("HeteroTP*.md"))
each_page = pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(DOCS)))


# -- the site ----------------------------------------------------------------------------------------------------


class Head(HTMLParser):
    """Collects what a page loads by itself."""

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
    """The built site; links and anchors that lead nowhere make a strict build fail."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]  # --quiet would count nothing
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # of a banner of the theme's
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
    """Markdown wants an empty line before lists and tables, and four spaces before what belongs to an item."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        paragraphs = re.findall(r"<p>(.*?)</p>", text, flags=re.DOTALL)
        assert [text for text in paragraphs if re.search(r"^(- |\d\. |\|)", text, flags=re.MULTILINE)] == [], page
        assert re.findall(r"<code>(?:sh|yaml|json|promql|text|python)\n", text) == [], page


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


# -- generated pages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "made"), [("kinds", kinds.page), ("metrics", metrics.page), ("cli", cli.page)])
def test_reference_pages_are_up_to_date(name, made):
    assert (DOCS / "reference" / f"{name}.md").read_text() == made(), "run make generate"


def described(path, node):
    """Yield path and description of every field below a schema."""
    for name, inner in node.get("properties", {}).items():
        yield f"{path}.{name}", inner.get("description")
        yield from described(f"{path}.{name}", inner.get("items", inner))


@pytest.mark.parametrize("crd", crds(), ids=lambda crd: crd["spec"]["names"]["kind"])
def test_every_field_is_described(crd):
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found = {path: text for part in ("spec", "status") for path, text in described(part, schema["properties"][part])}
    assert len(found) > 20
    assert [path for path, text in found.items() if not text] == []


def test_every_field_has_a_row():
    text = kinds.page()
    for word in ("`tensorParallelDegree`", "`imputation`", "`leastDeletion`", "`observedGeneration`", "`slowdown`"):
        assert word in text
    assert text.count("| `thetaQuantile` |") == 1, "described once, linked elsewhere"


def test_series_are_counted_from_the_exposition():
    text = metrics.page()
    assert "| a rank | 6 | 17 |" in text
    row = next(line for line in text.splitlines() if line.startswith("| `heterotp_phase_seconds_total`"))
    assert "basic: matmul, fixed, wait" in row
    assert "| 3 | 7 |" in row


def test_every_command_has_a_section():
    text = cli.page()
    for group, name in ((heterotp, "heterotp"), (kubectl_heterotp, "kubectl heterotp")):
        assert all(f"### {name} {command}\n" in text for command in group.list_commands(None))


# -- what the pages say ------------------------------------------------------------------------------------------


def shell_lines(page):
    """Yield the commands of a page: those of its sh blocks, and what begins like a command of ours within a line."""
    text = page.read_text()
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield from re.split(r"\s(?:&&|\||;)\s", line.strip())
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`((?:kubectl )?heterotp [a-z][^`]*)`", prose)


def ours(line):
    """Return group and arguments of a command of ours, None for any other."""
    words = [word for word in shlex.split(line, comments=True) if word not in ("&", ">")]
    words = words[next((n for n, word in enumerate(words) if "=" not in word.split("/")[0]), 0) :]
    if words[:2] == ["kubectl", "heterotp"]:
        return kubectl_heterotp, words[2:]
    return (heterotp, words[1:]) if words[:1] == ["heterotp"] else None


@each_page
def test_commands_exist_as_they_are_written(page):
    for line in shell_lines(page):
        if (found := ours(line)) is not None:
            group, arguments = found
            done = CliRunner().invoke(group, [*arguments, "--help"])  # click refuses an unknown option before it helps
            assert done.exit_code == 0, f"{line}: {done.output}"


def test_the_first_ten_minutes_have_commands_of_both_programs():
    found = [ours(line)[0] for line in shell_lines(DOCS / "first-ten-minutes.md") if ours(line)]
    assert found.count(heterotp) >= 5
    assert found.count(kubectl_heterotp) >= 2


@each_page
def test_make_targets_and_files_exist(page):
    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = [line.split("#")[0].split()[1:] for line in shell_lines(page) if line.startswith("make ")]
    named += [[word] for word in re.findall(r"`make ([a-z-]+)`", text)]
    assert [target for line in named for target in line if target not in targets] == []
    paths = re.findall(r"\b((?:examples|charts|tools|benchmarks)/[\w./-]+\w)", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def rules(kind):
    """Return the rules by name: `alert` or `record`."""
    groups = yaml.safe_load((ROOT / "dashboards" / "heterotp-rules.yaml").read_text())["groups"]
    return {rule[kind]: rule for part in groups for rule in part["rules"] if kind in rule}


def test_every_alert_has_a_runbook_and_no_runbook_is_left_over():
    assert sorted(rules("alert")) == ALERTS


def test_the_runbooks_index_tells_severities_as_the_rules_do():
    index = (RUNBOOKS / "index.md").read_text()
    for name, alert in rules("alert").items():
        severity = alert["labels"]["severity"]
        assert f"| [{name}]({name}.md) | {severity} |" in index
        assert f"\n*{severity}, " in (RUNBOOKS / f"{name}.md").read_text()


@pytest.mark.parametrize("alert", ALERTS)
def test_a_runbook_says_what_it_means_where_to_look_what_to_do_and_when_it_is_nothing(alert):
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert text.startswith(f"# {alert}\n")
    headings = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert headings[0] == "What it means"
    assert {"Look", "It is nothing when"} <= set(headings)
    assert any(heading.startswith("Do") for heading in headings)
    assert len(text.splitlines()) <= 90, "for somebody who was asleep a minute ago"


@each_page
def test_metrics_that_are_named_exist(page):
    exported = set(re.findall(r"^\| `(heterotp_\w+)`", metrics.page(), flags=re.MULTILINE))
    named = set(re.findall(r"\bheterotp_[a-z_]+\b", page.read_text()))
    named -= {"heterotp_trainer", "heterotp_io_job", "heterotp_cli", "heterotp_api", "heterotp_operator", "heterotp_"}
    recorded = re.compile(r":(heterotp_[a-z_]+):")
    named -= set(recorded.findall(page.read_text()))
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in named} - exported == set()


def test_settings_of_the_operator_are_told_with_their_defaults():
    text = (DOCS / "operating.md").read_text()
    told = dict(re.findall(r"^\| `HETEROTP_(\w+)` \| (\S+) \|", text, flags=re.MULTILINE))
    known = {field.name.upper(): field.default for field in fields(Settings)}
    assert {name: f"{known[name]:g}" if isinstance(known[name], float) else str(known[name]) for name in told} == told
    by_chart = {"TRAINER_IMAGE", "NAMESPACES", "LEASE_NAME"}
    own = {"IDENTITY", "LEASE_NAMESPACE", "METRICS_HOST"}  # found out by the process; nobody need set them
    assert set(known) - set(told) == by_chart | own


def test_recorded_series_that_are_named_exist():
    text = "\n".join(page.read_text() for page in PROSE)
    named = set(re.findall(r"\bnamespace(?:_heterotpjob(?:_rank)?)?:heterotp_\w+:\w+", text))
    assert len(named) >= 6
    assert named <= set(rules("record"))


def test_queries_are_promql():
    blocks = [
        block for page in PROSE for block in re.findall(r"```promql\n(.*?)```", page.read_text(), flags=re.DOTALL)
    ]
    queries = [line for block in blocks for line in block.splitlines()]
    assert len(queries) > 20
    for query in queries:
        promql_parser.parse(query)  # raises ValueError


def slanted(paragraph):
    """Return the words between single asterisks."""
    return re.findall(r"(?<![*\w])\*([^*]+)\*(?!\*)", " ".join(paragraph.split()))


def test_panels_that_are_named_exist():
    """Slanted words in a paragraph that names a board are titles of its panels or rows."""
    checked = 0
    for paragraph in (text for page in PROSE for text in page.read_text().split("\n\n") if not text.startswith("|")):
        board = re.search(r"\bboard(?:'s row| `heterotp-([a-z]+)`)", paragraph, flags=re.IGNORECASE)
        if board is not None:
            panels = json.loads((ROOT / "dashboards" / f"heterotp-{board[1] or 'straggler'}.json").read_text())[
                "panels"
            ]
            titles = {panel["title"] for row in panels for panel in (row, *row.get("panels", ()))}
            assert set(slanted(paragraph)) <= titles
            checked += len(slanted(paragraph))
    assert checked > 20


def said_by_the_code():
    """Return all texts of the programs, the parts of a split one put together, what differs as one character."""
    files = [path for part in ("api", "operator", "trainer", "cli") for path in sorted((ROOT / part).rglob("*.py"))]
    text = "\n".join(path.read_text() for path in files)
    return re.sub(r"""(["'])\s*\n?\s*f?\1""", "", text)


def quoted():
    """Yield the messages that the FAQ quotes: code in the first column of its tables, … for what differs."""
    for line in (DOCS / "faq.md").read_text().splitlines():
        if line.startswith("| ") and not line.startswith("| you see"):
            yield from re.findall(r"`([^`]+)`", line.split(" | ")[0])


def test_messages_of_the_faq_are_those_of_the_code():
    said = said_by_the_code()
    messages = list(quoted())
    assert len(messages) > 60
    parts = [part.strip(" '") for message in messages for part in re.split(r"…x?|: |; ", message)]
    assert [part for part in parts if len(part) > 3 and part not in said] == []
