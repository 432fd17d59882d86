"""Models of transformers on random shares, with ranks that own nothing of a family, against the plain models.

All in float64. The list of architectures in docs is made from the same configs.
"""

import pytest
from support.ranks import architectures as tested

ARCHITECTURES = tuple(tested.CONFIGS)
RANKS = pytest.mark.parametrize("ranks", tested.RANKS)


def errors(gang, ranks, architecture, quantity):
    results = gang("parallel_model_checks.py", ranks)
    assert len(results) == ranks
    return [result[architecture][quantity] for result in results if quantity in result[architecture]]


@RANKS
@pytest.mark.parametrize("quantity", tested.EXACT)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_equals_the_plain_model(gang, architecture, quantity, ranks):
    found = errors(gang, ranks, architecture, quantity)
    assert max(found) <= tested.BOUND, found


@RANKS
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_loaded_and_exported_is_bit_equal_for_transformers(gang, architecture, ranks):
    assert errors(gang, ranks, architecture, "exported") == [0.0]


@pytest.mark.parametrize("ranks", tested.WRITING)
@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name not in ("bert", "roberta", "vit")])
def test_what_it_writes_is_what_the_plain_model_writes(gang, architecture, ranks):
    """Greedily, with a cache of keys and values, before units moved and afterwards."""
    found = errors(gang, ranks, architecture, "generated")
    assert len(found) == ranks and max(found) == 0.0


@RANKS
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_drawn_weights_do_not_depend_on_the_shares(gang, architecture, ranks):
    assert max(errors(gang, ranks, architecture, "drawn")) == 0.0
