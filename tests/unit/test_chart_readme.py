"""The tables of the chart's README, made from the comments of values.yaml."""

import importlib.util

import pytest
import yaml
from places import ROOT
from rendered_chart import CHART

SPEC = importlib.util.spec_from_file_location("chart_readme", ROOT / "tools" / "chart_readme.py")
chart_readme = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(chart_readme)

VALUES = """\
# Nobody's comment

## First

# How many
replicas: 2
image:
  # Where it is;
  # two lines | and a bar
  repository: here/it
  # Empty: another
  tag: ""

## Second

# One value
resources: {requests: {cpu: 1}}
"""
TABLES = """\
### First

| value | default | meaning |
|---|---|---|
| `replicas` | `2` | How many |
| `image.repository` | `"here/it"` | Where it is; two lines \\| and a bar |
| `image.tag` |  | Empty: another |

### Second

| value | default | meaning |
|---|---|---|
| `resources` | `{"requests": {"cpu": 1}}` | One value |
"""


def test_tables_of_a_file():
    assert chart_readme.tables(VALUES) == TABLES


@pytest.mark.parametrize("line", ["# How many\n", "  # Empty: another\n", "# One value\n"])
def test_a_value_without_a_comment_is_an_error(line):
    with pytest.raises(
        chart_readme.Undocumented, match=r"values.yaml:\d+: (replicas|image.tag|resources) has no comment"
    ):
        chart_readme.tables(VALUES.replace(line, ""))


def test_only_what_is_between_the_marks_is_replaced():
    readme = f"before\n{chart_readme.BEGIN}\nold\n{chart_readme.END}\nafter\n"
    once = chart_readme.with_tables(readme, "new\n")
    assert once == f"before\n{chart_readme.BEGIN}\n\nnew\n\n{chart_readme.END}\nafter\n"
    assert chart_readme.with_tables(once, "new\n") == once


def test_a_readme_without_marks_is_an_error():
    with pytest.raises(chart_readme.Undocumented, match=r"README\.md"):
        chart_readme.with_tables("nothing here", "new")


@pytest.fixture
def chart(tmp_path, monkeypatch):
    """A chart whose README is up to date."""
    monkeypatch.setattr(chart_readme, "CHART", tmp_path)
    (tmp_path / "values.yaml").write_text(VALUES)
    (tmp_path / "README.md").write_text(f"{chart_readme.BEGIN}\n{chart_readme.END}\n")
    assert chart_readme.main([]) == 0
    return tmp_path


def test_drift_is_told(chart, capsys):
    assert chart_readme.main(["--check"]) == 0
    (chart / "values.yaml").write_text(VALUES.replace("replicas: 2", "replicas: 3"))
    before = (chart / "README.md").read_text()
    assert chart_readme.main(["--check"]) == 1
    assert "make generate" in capsys.readouterr().err
    assert (chart / "README.md").read_text() == before


def test_every_value_of_ours_has_a_row():
    text = (CHART / "README.md").read_text()
    assert all(f"| `{key}" in text for key in yaml.safe_load((CHART / "values.yaml").read_text()))
