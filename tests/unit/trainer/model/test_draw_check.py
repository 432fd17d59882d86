"""Random numbers drawn in a forward in training are seen, in whatever way a loop calls the model."""

import pytest
import torch
import torch.nn.functional as F
from heterotp_trainer.model.checks import DrawCheck
from torch import nn
from torch.utils.checkpoint import checkpoint

CPU = torch.device("cpu")


class Block(nn.Module):
    def __init__(self, p=0.0):
        super().__init__()
        self.linear, self.p = nn.Linear(3, 3), p

    def forward(self, x):
        return F.dropout(self.linear(x), self.p, self.training)


class Model(nn.Module):
    def __init__(self, p=0.0, *, recompute=False):
        super().__init__()
        self.encoder, self.head, self.recompute = nn.Sequential(Block(), Block(p)), nn.Linear(3, 1), recompute

    def forward(self, x):
        x = checkpoint(self.encoder, x, use_reentrant=False) if self.recompute else self.encoder(x)
        return self.head(x)

    def loss(self, x):
        return self.head(self.encoder(x)).mean()


@pytest.mark.parametrize("call", [lambda model, x: model(x), lambda model, x: model.loss(x)], ids=["model", "part"])
def test_a_draw_is_named_by_its_innermost_module_and_later_by_what_the_loop_calls(call):
    model, x = Model(0.5), torch.ones(2, 3)
    check = DrawCheck(model, CPU)
    with pytest.raises(ValueError, match=r"^model: encoder\.1: Block draws random numbers in training"):
        call(model, x)
    model.encoder[1].p = 0.0
    check = DrawCheck(model := Model(), CPU)
    call(model, x)
    check.forget_parts()
    assert not model.encoder[1]._forward_hooks and not model.encoder[1].linear._forward_hooks
    model.encoder[1].p = 0.5
    with pytest.raises(ValueError, match=r"^model: (encoder: Sequential|Model) draws random numbers in training"):
        call(model, x)
    model.eval()
    call(model, x)


def test_a_recomputation_that_ends_inside_of_a_module_leaves_nothing_behind():
    model, x = Model(recompute=True), torch.ones(2, 3, requires_grad=True)
    check = DrawCheck(model, CPU)
    for _ in range(5):
        model(x).mean().backward()
        torch.rand(())  # between two iterations a script may draw
        model.eval()(x)
        model.train()
    assert len(check._entered) <= len(list(model.modules()))
    model.encoder[1].p = 0.5
    with pytest.raises(ValueError, match=r"^model: encoder\.1: Block draws"):
        model(x)
