"""The architectures that docs/convert-your-model.md lists are those that the tests compare with the plain models."""

import re

import pytest
from heterotp_trainer.parallelize.architectures import TABLES
from heterotp_trainer.parallelize.model import plan_for
from heterotp_trainer.parallelize.transformers_plan import head_sizes
from support.pages import DOCS
from support.ranks.architectures import BIT_EQUAL, BOUND, CONFIGS, EXACT, RANKS, empty_model

SECTION = (DOCS / "convert-your-model.md").read_text().partition("\n## Architectures\n")[2].partition("\n## ")[0]
PLANS = {True: "ours", False: "transformers' `tp_plan`"}
KINDS = {"heads": "heads", "ffn": "hidden units", "vocab": "vocabulary"}


def row(name):
    """Return the row of an architecture: class, plan, query heads per K/V head of the tested model, what is cut."""
    model = empty_model(name)
    plan, sizes = plan_for(model), head_sizes(model.config)
    assert (plan.source == "transformers") == (name not in TABLES)
    families = {part.family for part in plan.parts if part.role != "replicated.partial"}
    cut = ", ".join(kind for family, kind in KINDS.items() if family in families)
    heads = f"{sizes.groups} × {sizes.queries}"
    return f"| `{model.config.model_type}` | `{type(model).__name__}` | {PLANS[name in TABLES]} | {heads} | {cut} |"


@pytest.mark.parametrize("name", CONFIGS)
def test_every_tested_architecture_is_listed_as_it_is(name):
    assert row(name) in SECTION.splitlines()


def test_no_other_one_is_listed():
    assert len(re.findall(r"^\| `\w+` \| `\w+` \|", SECTION, flags=re.MULTILINE)) == len(CONFIGS)


def test_every_table_of_ours_is_tested():
    assert set(TABLES) <= set(CONFIGS)


def test_what_is_compared_is_listed_with_its_bound():
    bounds = {**dict.fromkeys(EXACT, f"{BOUND:.0e}"), **dict.fromkeys(BIT_EQUAL, "bit by bit")}
    assert dict(re.findall(r"^\| (\w+) \| [^|]+ \| (1e-\d+|bit by bit) \|$", SECTION, flags=re.MULTILINE)) == bounds
    assert f"on {', '.join(map(str, RANKS[:-1]))} and {RANKS[-1]} ranks" in " ".join(SECTION.split())
