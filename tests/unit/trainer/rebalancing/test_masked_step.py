"""An optimizer step that leaves pruned columns alone."""

import pytest
import torch
from heterotp_api.training import Training
from heterotp_trainer.rebalancing.masked_step import step_around
from heterotp_trainer.training.optimizer import adamw
from torch import nn


def stepped(parameter, optimizer, parts=(), gradient=1.0):
    """Step once with gradients that differ from place to place."""
    parameter.grad = gradient * torch.arange(1.0, parameter.numel() + 1).view_as(parameter)
    step_around(optimizer, parts)


def all_of(parameter, optimizer):
    state = {name: value.clone() for name, value in optimizer.state[parameter].items()}
    return {"values": parameter.detach().clone(), **state}


@pytest.mark.parametrize("before", [0, 3], ids=["first-step", "with-momentum"])
@pytest.mark.parametrize(("dim", "ids"), [(1, [0, 3]), (0, [1]), (1, [])], ids=["columns", "rows", "none"])
def test_a_step_around_columns_leaves_them_and_their_state(dim, ids, before):
    mine, plain = (nn.Parameter(torch.ones(3, 4)) for _ in range(2))
    optimizer, other = (adamw([p], Training(learning_rate=0.1, weight_decay=0.5)) for p in (mine, plain))
    for _ in range(before):
        stepped(mine, optimizer)
        stepped(plain, other)
    chosen = torch.tensor(ids, dtype=torch.int64)
    was = all_of(mine, optimizer)
    stepped(mine, optimizer, [(mine, dim, chosen)], gradient=2.0)
    stepped(plain, other, gradient=2.0)
    found, expected = all_of(mine, optimizer), all_of(plain, other)
    assert found.keys() == expected.keys() == {"values", "step", "exp_avg", "exp_avg_sq"}
    for name, wanted in expected.items():
        if name != "step":
            left = was.get(name, torch.zeros_like(wanted)).index_select(dim, chosen)
            wanted.index_copy_(dim, chosen, left)
        assert torch.equal(found[name], wanted), name
    assert torch.equal(mine.detach(), plain.detach()) == (not ids)
