"""Updates that are not finite are refused; what their forward pass wrote into buffers is undone."""

import math

import pytest
import torch
from heterotp_trainer.boundary.finite_guard import MOST_SKIPPED, BuffersBefore, FiniteGuard, NonFiniteError
from torch import nn


@pytest.mark.parametrize("norm", [math.nan, math.inf, -math.inf])
def test_stop_ends_at_the_first_norm_that_is_not_finite(norm):
    guard = FiniteGuard("Stop")
    assert guard.allows(1e300, 1)
    with pytest.raises(NonFiniteError, match=r"^iteration 2: .*: stopped before the update \(onNonFinite: Stop\)$"):
        guard.allows(norm, 2)
    assert guard.skipped == 0


def test_skip_leaves_out_ten_updates_in_a_row_and_ends_at_the_next():
    guard = FiniteGuard("Skip")
    assert [guard.allows(math.nan, n) for n in range(1, MOST_SKIPPED + 1)] == [False] * MOST_SKIPPED
    with pytest.raises(
        NonFiniteError, match=rf"^iteration 11: .*, as in the {MOST_SKIPPED} iterations before: stopped$"
    ):
        guard.allows(math.nan, 11)
    assert guard.skipped == MOST_SKIPPED


def test_a_finite_update_begins_the_count_of_those_in_a_row_anew():
    guard = FiniteGuard("Skip")
    for iteration in range(1, 4 * MOST_SKIPPED):
        norm = 1.0 if iteration % MOST_SKIPPED == 0 else math.inf
        assert guard.allows(norm, iteration) == math.isfinite(norm)
    assert guard.skipped == 4 * (MOST_SKIPPED - 1)


def test_buffers_are_put_back_where_they_were_written_and_where_they_were_replaced():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model.register_buffer("mask", torch.tensor([0.0, -math.inf]), persistent=False)
    model.register_buffer("none", None)
    mask = model.mask
    before = BuffersBefore(model)
    model(torch.ones(3, 2))
    before.take()
    good = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for _ in range(2):  # also in a row
        model(torch.full((3, 2), math.nan))
        model.mask = torch.zeros(5)
        assert bool(model[1].running_var.isnan().all())
        before.put_back()
        assert all(torch.equal(buffer, good[name]) for name, buffer in model.named_buffers())
    assert model.mask is mask and int(model[1].num_batches_tracked) == 1
