"""Gradients that are averaged on unlike devices: rounding passes, what one rank computes otherwise is named."""

import pytest
import torch
from heterotp_trainer.boundary import gradient_agreement
from heterotp_trainer.boundary.gradient_agreement import COMPARE_EVERY, FIRST_COMPARED, GradientAgreement

NAMES = ["embed.weight", "norm.bias"]


@pytest.fixture
def found(monkeypatch):
    """Return found(gradients by rank, dtype): which ranks' gradients of NAMES are too far from their mean."""

    def of(*ranks, dtype=torch.float32, agreement=None):
        means = [torch.stack(each).mean(0) for each in zip(*ranks, strict=True)]
        measured = [
            torch.tensor([[float(torch.dist(g, m)), float(m.norm())] for g, m in zip(rank, means, strict=True)])
            for rank in ranks
        ]

        def all_gather(gathered, own, group):
            for each, value in zip(gathered, measured, strict=True):
                each.copy_(value)

        monkeypatch.setattr(gradient_agreement.dist, "all_gather", all_gather)
        return (agreement or GradientAgreement(dtype)).found(NAMES, measured[0], None, len(ranks))

    return of


WEIGHT = torch.randn(64, generator=torch.Generator().manual_seed(0))
NOISE = torch.randn(64, generator=torch.Generator().manual_seed(1))


def test_rounding_passes_also_where_a_gradient_is_nothing_else(found):
    assert found([WEIGHT, 1e-7 * NOISE], [WEIGHT + 1e-3 * NOISE, -1e-7 * NOISE]) == {}
    assert found([WEIGHT, 1e-3 * NOISE], [WEIGHT + 0.2 * NOISE, -1e-3 * NOISE], dtype=torch.bfloat16) == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_rank_that_differs_is_named_with_the_tensor(found, dtype):
    right = [WEIGHT, 0.5 * NOISE]
    assert found(right, right, [WEIGHT, -0.5 * NOISE], dtype=dtype) == {"norm.bias": [2]}
    assert found(right, [2 * WEIGHT, 0.5 * NOISE], dtype=dtype) == {"embed.weight": [0, 1]}
    assert found(right, right, right, [WEIGHT * 0, NOISE * 0], dtype=dtype) == {name: [3] for name in NAMES}


def test_products_in_tf32_round_as_coarsely(found, monkeypatch):
    ranks = [WEIGHT, 1e-4 * NOISE], [WEIGHT, -1e-4 * NOISE]
    assert found(*ranks) == {"norm.bias": [0, 1]}
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert found(*ranks) == {}


def test_rounding_is_measured_by_the_largest_gradients_so_far(found):
    agreement = GradientAgreement(torch.float32)
    late = [1e-5 * WEIGHT, 0 * WEIGHT], [-1e-5 * WEIGHT, 0 * WEIGHT]
    assert found(*late, agreement=agreement) == {"embed.weight": [0, 1]}
    assert found([WEIGHT * 9, WEIGHT], [WEIGHT * 9, WEIGHT], agreement=agreement) == {}
    assert found(*late, agreement=agreement) == {}


def test_values_that_are_not_finite_are_left_to_the_guard(found):
    agreement = GradientAgreement(torch.float32)
    for broken in (float("nan"), float("inf")):
        assert found([WEIGHT, NOISE], [WEIGHT * broken, NOISE], agreement=agreement) == {}
    assert found([WEIGHT, NOISE], [-WEIGHT, NOISE], agreement=agreement) == {"embed.weight": [0, 1]}


def test_the_first_updates_are_compared_and_then_every_hundredth_iteration():
    agreement = GradientAgreement(torch.float32)
    due = [iteration for iteration in range(51, 251) if agreement.due(iteration)]
    assert due == [51, 52, 53, 100, 200]
    assert (FIRST_COMPARED, COMPARE_EVERY) == (3, 100)
