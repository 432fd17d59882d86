"""How layers share the columns that a rank prunes (PriDiff)."""

import itertools
import math

import pytest
from heterotp_api.strategy_blocks import Zero
from heterotp_trainer.balancing.layer_columns import columns_by_layer
from heterotp_trainer.plans.grains import blocks
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("candidates", "alpha", "counts"),
    [
        ([0.5, 0.5], 0.8, [500, 500]),
        ([0.1, 0.9], 0.8, [308, 692]),
        ([0.1, 0.9], 1.0, [357, 643]),
        ([0.1, 0.9], 0.0, [100, 900]),
        ([0.0, 1.0], 0.0, [100, 900]),
        ([0.0, 0.0], 0.0, [500, 500]),
    ],
    ids=["equal", "alpha-floor", "alpha-1", "no-floor", "gamma-max", "nothing-unimportant"],
)
def test_layers_prune_by_their_unimportant_columns(candidates, alpha, counts):
    assert columns_by_layer(500, candidates, Zero(alpha=alpha), 1000, 1000, 1) == counts


@pytest.mark.parametrize(
    ("room", "counts"), [(1000, [308, 692]), (600, [400, 600]), (500, [500, 500])], ids=["free", "some", "none-left"]
)
def test_a_layer_prunes_no_more_than_does_not_migrate(room, counts):
    assert columns_by_layer(500, [0.1, 0.9], Zero(), 1000, room, 1) == counts


@st.composite
def layers(draw):
    grain, count = draw(st.sampled_from([1, 4, 16])), draw(st.integers(1, 8))
    columns = draw(st.integers(1, 20)) * grain + draw(st.integers(0, grain - 1))
    zero = Zero(gamma_max=draw(st.floats(0, 1)), alpha=draw(st.floats(0, 1)))
    most = blocks(zero.gamma_max * columns, grain)
    asked = draw(st.integers(0, most // grain)) * grain
    candidates = draw(st.lists(st.floats(0, 1), min_size=count, max_size=count))
    return asked, candidates, zero, columns, grain, most


@given(layers())
def test_layers_keep_the_sum_the_blocks_the_order_and_gamma_max(drawn):
    asked, candidates, zero, columns, grain, most = drawn
    counts = columns_by_layer(asked, candidates, zero, columns, columns, grain)
    assert sum(counts) == asked * len(candidates)
    assert all(0 <= count <= most and count % grain == 0 for count in counts)
    in_order = [count for _, count in sorted(zip(candidates, counts, strict=True))]
    assert all(a <= b + grain for a, b in itertools.combinations(in_order, 2))
    ratios = [max(share, zero.alpha * asked / columns) for share in candidates]
    ideal = [asked * len(ratios) * ratio / math.fsum(ratios) if any(ratios) else asked for ratio in ratios]
    if max(ideal) <= most:
        assert all(abs(count - wanted) < grain + 1e-6 for count, wanted in zip(counts, ideal, strict=True))
