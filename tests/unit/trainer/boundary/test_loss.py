"""What a loop may hand over as its loss."""

from math import inf

import pytest
import torch
from heterotp_trainer.boundary.loss import ToldLoss, scalar_loss
from heterotp_trainer.errors import InputError


@pytest.mark.parametrize("loss", [2.5, torch.tensor(2.5), torch.tensor([2.5]), torch.tensor(2.5, requires_grad=True)])
def test_one_number_is_taken(loss):
    assert scalar_loss(loss, "session.step").item() == 2.5
    assert scalar_loss(loss, "session.step").shape == ()


def test_no_loss_stays_none():
    assert scalar_loss(None, "session.step") is None


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (torch.zeros(4, 2), "a tensor of shape [4, 2]: must be one number, as loss.mean() is"),
        ("2.5", "str: must be a tensor of one number, or a number"),
    ],
)
def test_anything_else_is_refused(loss, message):
    with pytest.raises(InputError) as raised:
        scalar_loss(loss, "session.boundary")
    assert str(raised.value) == f"session.boundary: loss: {message}"


def test_the_loss_of_an_iteration_is_told_at_once_or_one_iteration_later():
    losses = [torch.tensor(3.0, requires_grad=True), None, torch.tensor(2.0)]
    at_once, late = ToldLoss(late=False), ToldLoss(late=True)
    assert [at_once.take(loss) for loss in losses] == [3.0, inf, 2.0]
    assert [late.take(loss) for loss in [*losses, None]] == [inf, 3.0, inf, 2.0]
