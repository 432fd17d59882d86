"""The batch by which a model of one's own is checked: from its embedding and the arguments that its forward needs."""

import pytest
from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.check import inputs_for
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 4)


def needs(call):
    return type("Own", (Model,), {"forward": call})()


@pytest.mark.parametrize(
    ("call", "given"),
    [
        (lambda self, idx: 0, 1),
        (lambda self, idx, targets=None: 0, 1),
        (lambda self, *inputs, **named: 0, 1),
        (lambda self, idx, targets: 0, 2),
        (lambda self, idx, y, scale=1.0: 0, 2),
    ],
    ids=["ids", "optional targets", "any", "ids and targets", "y"],
)
def test_ids_and_targets_are_given_where_forward_needs_them(call, given):
    batch = inputs_for(needs(call))
    assert len(batch) == given and all(each is batch[0] for each in batch)
    assert batch[0].max() < 11


@pytest.mark.parametrize("call", [lambda self, idx, positions: 0, lambda self, a, b, c: 0, lambda self: 0])
def test_other_arguments_are_not_guessed(call):
    with pytest.raises(InputError, match=r"^check: the inputs of this model are not known: give check=\(tensors"):
        inputs_for(needs(call))
