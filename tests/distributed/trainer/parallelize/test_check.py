"""parallelize(check=True): a small copy on shards against the unsharded one; what it finds is named."""

import re

import pytest
from support.mistakes import pattern, refusals
from support.ranks.architectures import CONFIGS
from support.ranks.check_model_checks import SHARED

FOUND = refusals("By comparing ranks and small copies")
RIGHT = (*CONFIGS, "a classifier", "plain", "torch encoder", "torch encoder with values", *SHARED)


@pytest.mark.parametrize("case", RIGHT)
def test_a_model_that_can_be_cut_passes(gang, case):
    assert [result[case] for result in gang("check_model_checks.py", 2)] == ["", ""]


@pytest.mark.parametrize("mistake", FOUND)
def test_what_cannot_be_cut_is_named_as_the_page_lists_it(gang, mistake):
    for result in gang("check_model_checks.py", 2):
        assert re.fullmatch(pattern(FOUND[mistake]), result[mistake]), result[mistake]


def test_the_page_lists_every_mistake_that_is_made(gang):
    (made, _) = gang("check_model_checks.py", 2)
    assert set(made) == {*FOUND, *RIGHT}
