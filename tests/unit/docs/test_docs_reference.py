"""Generated pages of the documentation are up to date and complete."""

import pytest
from heterotp_api.crd import crds
from heterotp_cli.main import group as heterotp
from heterotp_cli.plugin import group as kubectl_heterotp
from heterotp_operator.metrics import Metrics
from reference import cli, kinds, metrics
from support.pages import DOCS


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


def test_every_metric_of_the_operator_has_a_row():
    """Includes metrics of the process, which a collector of the library creates at each scrape."""
    ends = {"counter": "_total", "info": "_info"}
    names = [family.name + ends.get(family.type, "") for family in Metrics().registry.collect()]
    assert "process_resident_memory_bytes" in names and "heterotp_operator_leader" in names
    rows = [line for line in metrics.page().splitlines() if line.startswith("| `")]
    assert [name for name in names if sum(row.startswith(f"| `{name}` |") for row in rows) != 1] == []


def test_every_command_has_a_section():
    text = cli.page()
    for group, name in ((heterotp, "heterotp"), (kubectl_heterotp, "kubectl heterotp")):
        assert all(f"### {name} {command}\n" in text for command in group.list_commands(None))
