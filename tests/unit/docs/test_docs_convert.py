"""The page "Convert your own model": programs as they are, every changed line explained, its snippet and its tables."""

import re

import pytest
import torch
import torch.nn.functional as F
from heterotp_trainer.parallelize.roles import ROLES
from reference import side_by_side
from support.benchmarks import models_benchmark
from support.contexts import contexts
from support.pages import DOCS, blocks
from support.places import ROOT

PLAIN, TRAIN = (ROOT / "examples" / "own-model" / name for name in side_by_side.EXAMPLES["own-model"])
PAGE = DOCS / "convert-your-model.md"
NUMBER = re.compile(r"  # \((\d+)\)$")


def test_the_page_shows_the_programs_as_they_are():
    assert PAGE.read_text() == side_by_side.page(), "run make generate"


def test_sections_that_differ_are_all_shown_and_the_data_stays():
    shown = re.findall(r"^<!-- side by side: (.+) -->$", PAGE.read_text(), flags=re.MULTILINE)
    titles = list(side_by_side.sections(TRAIN.read_text()))
    assert titles == ["imports", "data", "attention", "feed-forward network", "model", "evaluation", "training"]
    equal = ("data", "feed-forward network", "model")
    assert shown == ["own-llama/program", *(f"own-model/{title}" for title in titles if title not in equal)]


def converted_lines():
    """Return the lines of the converted program that the plain one lacks, and all others of its code."""
    plain, train = (side_by_side.sections(path.read_text()) for path in (PLAIN, TRAIN))
    differing, same = [], []
    for title, lines in train.items():
        numbers = set(side_by_side.changed(lines, plain[title]))
        for n, line in enumerate(lines, 1):
            (differing if n in numbers else same).append(line)
    return differing, same


def test_every_line_that_differs_has_a_number_and_no_other_line():
    differing, same = converted_lines()
    assert len(differing) > 20
    assert [line for line in differing if not NUMBER.search(line)] == []
    assert [line for line in same if NUMBER.search(line)] == []


def test_every_number_is_explained_once_in_the_order_of_the_program():
    rows = [int(number) for number in re.findall(r"^\| (\d+) \| ", PAGE.read_text(), flags=re.MULTILINE)]
    numbers = {int(NUMBER.search(line)[1]) for line in converted_lines()[0]}
    assert rows == sorted(numbers) == list(range(1, max(numbers) + 1))


def test_the_roles_are_all_there_are():
    section = PAGE.read_text().partition("\n## Roles\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+\.\w+)` \|", section, flags=re.MULTILINE) == list(ROLES)


def test_the_lines_that_each_way_adds_are_counted():
    table = re.findall(r"^\| [^|]+ \| `(\w+\.py)` \| (\d+) \|", PAGE.read_text(), flags=re.MULTILINE)
    counted = {name: len(models_benchmark().added_lines(name)) for name, _ in table}
    assert {name: int(lines) for name, lines in table} == counted
    assert set(counted) == {"heterotp_tp.py", "tp_plan.py", "dtensor.py"}


# -- layers by hand ---------------------------------------------------------------------------------------------


def test_the_attention_by_hand_computes_what_the_whole_one_does():
    """Of three ranks the last owns no head; without a group a row linear returns its rank's part of the sum."""
    (snippet,) = (block for block in blocks(PAGE, "python") if "head_by_head" in block)
    names = {}
    exec(snippet, names)  # the page's own code
    width, count = 12, 4
    torch.manual_seed(0)
    qkv, proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
    x = torch.randn(2, 5, width)
    query, key, value = (part.unflatten(-1, (count, -1)).transpose(1, 2) for part in qkv(x).chunk(3, -1))
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    parts, heads = [], []
    for tp in contexts():
        torch.manual_seed(0)
        attention = names["Attention"](tp, "attention", width, count)
        parts.append(attention(x) - attention.proj.bias)
        heads.append(len(attention.qkv.weight) // (3 * width // count))
    assert heads == [2, 2, 0]
    torch.testing.assert_close(sum(parts) + proj.bias, proj(mixed.transpose(1, 2).flatten(2)))


# -- the generator ---------------------------------------------------------------------------------------------

PROGRAM = '"""Doc."""\n\nimport a\n\n# -- one ---\n\n\nx = 1\ny = 2\n\n# -- two ---\n\nz = 3\n'


def test_sections_are_cut_at_their_titles():
    assert side_by_side.sections(PROGRAM) == {"imports": ["import a"], "one": ["x = 1", "y = 2"], "two": ["z = 3"]}


def test_changed_lines_are_those_that_the_other_program_lacks():
    assert side_by_side.changed(["a", "", "new", "b"], ["a", "old", "b"]) == [3]


def test_a_program_without_sections_is_one():
    assert side_by_side.sections('"""Doc."""\n\nimport a\n\nx = 1\n') == {"program": ["import a", "", "x = 1"]}


def pairs(plain, converted):
    return {title: (("plain.py", plain[title]), ("train.py", lines)) for title, lines in converted.items()}


def test_a_section_is_filled_in_at_its_place_again_and_again():
    plain = {"one": ["x = 1"], "two": ["z = 3"]}
    text = "before\n<!-- side by side: two -->\nwhat was there\n<!-- end of side by side -->\nafter\n"
    made = side_by_side.with_programs(text, pairs(plain, plain | {"two": ["z = 3", "more"]}))
    assert made.startswith("before\n") and made.endswith("<!-- end of side by side -->\nafter\n")
    assert '```python title="plain.py"\nz = 3\n```' in made
    assert '```python title="train.py" hl_lines="2"\nz = 3\nmore\n```' in made
    assert "what was there" not in made
    assert side_by_side.with_programs(made, pairs(plain, plain | {"two": ["z = 3", "more"]})) == made


@pytest.mark.parametrize("title", ["one", "three"])
def test_a_place_for_a_section_that_does_not_differ_is_refused(title):
    plain = {"one": ["x = 1"]}
    text = f"<!-- side by side: {title} -->\n<!-- end of side by side -->\n"
    with pytest.raises(side_by_side.Misplaced, match=rf"has places for \['{title}'\], but \[\] differ"):
        side_by_side.with_programs(text, pairs(plain, plain))
