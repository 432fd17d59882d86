"""What a loop may hand over as its loss."""

import pytest
import torch
from heterotp_trainer.boundary.loss import scalar_loss
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
