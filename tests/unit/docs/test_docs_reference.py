"""Generated pages of the documentation are up to date and complete."""

import inspect
import re

import heterotp
import pytest
from heterotp_api import names
from heterotp_api.crd import crds
from heterotp_cli.main import group as heterotp_verbs
from heterotp_cli.plugin import group as kubectl_heterotp
from heterotp_operator.metrics import Metrics
from reference import cli, kinds, library, metrics
from reference.__main__ import PAGES
from support.pages import DOCS


@pytest.mark.parametrize("name", PAGES)
def test_reference_pages_are_up_to_date(name):
    assert (DOCS / "reference" / name).read_text() == PAGES[name](), "run make generate"


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
    assert "| a rank | 6 | 27 |" in text
    row = next(line for line in text.splitlines() if line.startswith("| `heterotp_phase_seconds_total`"))
    assert "basic: matmul, fixed, wait" in row
    assert "| 3 | 7 |" in row


def test_every_metric_of_the_operator_has_a_row():
    """Includes metrics of the process, which a collector of the library creates at each scrape."""
    ends = {"counter": "_total", "info": "_info"}
    names = [family.name + ends.get(family.type, "") for family in Metrics().registry.collect()]
    assert "process_resident_memory_bytes" in names and "heterotp_operator_leader" in names
    rows = [line for line in metrics.page().splitlines() if line.startswith("| `")]
    assert [name for name in names if sum(row.startswith(f"| `{name}` |") for row in rows) != 1] == []


def test_every_command_has_a_section():
    text = cli.page()
    for group, name in ((heterotp_verbs, "heterotp"), (kubectl_heterotp, "kubectl heterotp")):
        assert all(f"### {name} {command}\n" in text for command in group.list_commands(None))


# -- the library -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", heterotp.__all__)
def test_every_public_name_of_the_library_has_its_docstring(name):
    section = library_sections()[name]
    assert library.plain(inspect.getdoc(getattr(heterotp, name))) in section


@pytest.mark.parametrize("kind", [heterotp.Session, heterotp.TPContext], ids=lambda kind: kind.__name__)
def test_every_public_method_has_a_section_with_its_docstring(kind):
    public = {name: each for name, each in vars(kind).items() if callable(each) and not name.startswith("_")}
    assert len(public) >= 2
    text = library.page()
    for name, method in public.items():
        section = text.split(f"#### {kind.__name__}.{name}\n")[1].split("\n#")[0]
        assert library.plain(inspect.getdoc(method)) in section


def test_signatures_name_types_without_their_modules():
    section = library_sections()["Session"]
    assert "Session.batch(*tensors: Tensor) -> tuple[Tensor, ...]" in section
    assert 'Session.finish(*, state: Literal["succeeded", "stopped"] = "succeeded") -> None' in section
    assert '    precision: Literal["fp32", "bf16"] | None = None,' in section


def test_the_exit_codes_of_a_rank_are_all_described():
    codes = {value for name, value in vars(names).items() if name.startswith("EXIT_")}
    described = {int(code) for code in re.findall(r"(?:^| {2,})(\d+)  ", library_sections()["run_rank"], re.MULTILINE)}
    assert described == codes | {0, 1}


def library_sections():
    parts = re.split(r"^### (\w+)\n", library.page(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
