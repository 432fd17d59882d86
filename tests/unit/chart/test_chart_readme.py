"""The tables of the chart's README, made from the comments of values.yaml."""

import pytest
import yaml
from click.testing import CliRunner
from reference import chart
from reference.__main__ import PAGES, main
from support.rendered_chart import CHART

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
| --- | --- | --- |
| `replicas` | `2` | How many |
| `image.repository` | `"here/it"` | Where it is; two lines \\| and a bar |
| `image.tag` |  | Empty: another |

### Second

| value | default | meaning |
| --- | --- | --- |
| `resources` | `{"requests": {"cpu": 1}}` | One value |"""


def test_tables_of_a_file():
    assert chart.tables(VALUES) == TABLES


@pytest.mark.parametrize("line", ["# How many\n", "  # Empty: another\n", "# One value\n"])
def test_a_value_without_a_comment_is_an_error(line):
    with pytest.raises(chart.Undocumented, match=r"values.yaml:\d+: (replicas|image.tag|resources) has no comment"):
        chart.tables(VALUES.replace(line, ""))


def test_only_what_is_between_the_marks_is_replaced():
    readme = f"before\n{chart.BEGIN}\nold\n{chart.END}\nafter\n"
    once = chart.with_tables(readme, "new")
    assert once == f"before\n{chart.BEGIN}\n\nnew\n\n{chart.END}\nafter\n"
    assert chart.with_tables(once, "new") == once


def test_a_readme_without_marks_is_an_error():
    with pytest.raises(chart.Undocumented, match=r"README\.md"):
        chart.with_tables("nothing here", "new")


def test_every_value_of_ours_has_a_row():
    text = (CHART / "README.md").read_text()
    assert all(f"| `{key}" in text for key in yaml.safe_load((CHART / "values.yaml").read_text()))


# -- `python -m reference` -----------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A chart and pages that are up to date."""
    monkeypatch.setattr(chart, "CHART", tmp_path)
    (tmp_path / "values.yaml").write_text(VALUES)
    (tmp_path / "README.md").write_text(f"{chart.BEGIN}\n{chart.END}\n")
    assert generate(tmp_path).exit_code == 0
    return tmp_path


def generate(checkout, *options):
    return CliRunner().invoke(main, [str(checkout / "pages"), *options])


def test_all_is_written_and_found_up_to_date(checkout):
    assert TABLES in (checkout / "README.md").read_text()
    assert {path.name for path in (checkout / "pages").iterdir()} == set(PAGES)
    assert (generate(checkout, "--check").exit_code, generate(checkout, "--check").output) == (0, "")


@pytest.mark.parametrize("name", ["README.md", "pages/cli.md", "pages/of_old.md"])
def test_drift_is_told_and_nothing_written(checkout, name):
    (checkout / name).write_text(f"{chart.BEGIN} by hand {chart.END}")
    done = generate(checkout, "--check")
    assert (done.exit_code, done.output) == (1, f"Error: {checkout / name}: out of date: run make generate\n")
    assert (checkout / name).read_text() == f"{chart.BEGIN} by hand {chart.END}"


def test_a_page_that_is_gone_is_told(checkout):
    (checkout / "pages" / "kinds.md").unlink()
    assert "kinds.md: out of date" in generate(checkout, "--check").output


def test_a_value_without_a_comment_is_one_line(checkout):
    (checkout / "values.yaml").write_text(VALUES.replace("# How many\n", ""))
    done = generate(checkout)
    assert (done.exit_code, done.output) == (1, "Error: values.yaml:5: replicas has no comment above it\n")
