"""Embedding and logits by vocabulary rows on one rank: what they refuse, as torch does or by a line of their own."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from heterotp_trainer.errors import InputError
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.sharded_logits import ShardedLogits
from heterotp_trainer.tensor_parallel.vocabulary import ParallelEmbedding
from support.contexts import Alone
from torch import nn

ROWS, WIDTH, OWN = 11, 3, 5


@pytest.fixture
def embedding():
    """An embedding of one rank, with values."""
    made = ParallelEmbedding.adopt(nn.Embedding(ROWS, WIDTH), Alone().shard(), name="embed")
    made.weight = nn.Parameter(torch.arange(1.0 * ROWS * WIDTH).view(ROWS, WIDTH))
    return made


@pytest.mark.parametrize("ids", [[-1], [-100, 3], [ROWS], [0, 4 * ROWS]])
def test_an_id_outside_of_the_vocabulary_is_an_error_as_in_torch(embedding, ids):
    plain = nn.Embedding(ROWS, WIDTH)
    for each in (plain, embedding):
        with pytest.raises(IndexError, match="index out of range"):
            each(torch.tensor(ids))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int16, torch.float32])
def test_ids_of_a_type_that_torch_refuses_are_refused(embedding, dtype):
    ids = torch.ones(ROWS, dtype=dtype)  # as long as the vocabulary: a mask would fit
    for each in (nn.Embedding(ROWS, WIDTH), embedding):
        with pytest.raises(RuntimeError, match="scalar types"):
            each(ids)


@pytest.mark.parametrize("ids", [torch.tensor(2), torch.tensor([[1, 2]], dtype=torch.int32), torch.empty(0, 2).long()])
def test_ids_of_any_shape_are_looked_up(embedding, ids):
    assert torch.equal(embedding(ids), F.embedding(ids, embedding.weight))


@pytest.fixture
def logits():
    """Logits [2, 4, ROWS] of which this rank of two holds some columns; no other rank is there."""
    tp = Alone(2).shard()
    tp.unit_plan = UnitPlan.from_counts([0, 0], [0, 0], [OWN, ROWS - OWN])
    return ShardedLogits(torch.randn(2, 4, OWN), tp, ROWS)


def setitem(x):
    x[..., 3] = -1.0


def data(x):
    x.data = torch.zeros(x.shape)


CHANGES = {
    "__setitem__": setitem,
    "__set__": data,
    "masked_fill_": lambda x: x.masked_fill_(torch.arange(ROWS) == 3, -1.0),
    "sub_": lambda x: x.sub_(torch.arange(ROWS)),
    "mul_": lambda x: x.__imul__(torch.ones(ROWS)),
    "div_": lambda x: x.div_(x),
    "copy_": lambda x: x.copy_(torch.zeros(2, 4, ROWS)),
    "scatter_": lambda x: x.scatter_(-1, torch.zeros(2, 4, 1).long(), 0.0),
    "normal_": lambda x: nn.init.normal_(x),
    "relu": lambda x: F.relu(x, inplace=True),
    "add": lambda x: torch.add(torch.ones(2), torch.ones(2), out=x),
    "_foreach_add_": lambda x: torch._foreach_add_([x], 1.0),
    "register_hook": lambda x: x.requires_grad_().register_hook(print),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_gathered_logits_is_refused_with_what_to_do(logits, name):
    before = logits.shard.clone()
    with pytest.raises(InputError, match=rf"logits: {name} would change a copy.*: logits = logits.clone\(\)$"):
        CHANGES[name](logits)
    assert torch.equal(logits.shard, before)


CHANGES_OF_PARTS = {
    "fill_": lambda x: x[:, :, 3].fill_(0.0),
    "mul_": lambda x: x[..., 3].mul_(2.0),
    "__setitem__": lambda x: x[..., :3].__setitem__(0, 1.0),
    "zero_": lambda x: x[..., :3][0][:, 1].zero_(),
    "add": lambda x: torch.add(torch.ones(2, 4), torch.ones(2, 4), out=x[..., 3]),
    "sub_": lambda x: x.transpose(0, 2)[3].sub_(1.0),
    "neg_": lambda x: x.chunk(2, -1)[1].neg_(),
    "exp_": lambda x: next(iter(x)).exp_(),
    "div_": lambda x: x[..., 3].detach().div_(2.0),
    "sqrt_": lambda x: x[..., 3:].data.mT.sqrt_(),
}


@pytest.mark.parametrize("name", CHANGES_OF_PARTS)
def test_a_change_of_a_part_of_gathered_logits_is_refused_too(logits, name, monkeypatch):
    monkeypatch.setattr(ShardedLogits, "whole", lambda self: torch.randn(2, 4, ROWS))
    for mode in (nullcontext(), torch.inference_mode()):
        with mode, pytest.raises(InputError, match=rf"logits: {name} would change a copy"):
            CHANGES_OF_PARTS[name](logits)


def test_a_part_of_gathered_logits_computes_as_a_plain_tensor(logits, monkeypatch):
    whole = torch.randn(2, 4, ROWS, requires_grad=True)
    monkeypatch.setattr(ShardedLogits, "whole", lambda self: whole)
    part = logits[..., :3]
    for result in (part * 2, part.clone().mul_(2.0), part.detach().float() * 2, torch.cat([part, part]).sum(0)):
        assert type(result) is torch.Tensor
    assert torch.equal(part.clone().mul_(2.0), whole[..., :3] * 2)
    assert torch.equal(logits[..., torch.tensor([0, 2])].mul_(1.0), whole[..., [0, 2]])  # torch copies here, too
    for result in (
        part[..., :1] - logits,
        logits - part[..., :1],
        torch.where(part[..., :1] > 0, part[..., :1], logits),
    ):
        assert type(result) is torch.Tensor and result.shape == (2, 4, ROWS)
    assert torch.equal(torch.cat([part, logits], -1), torch.cat([whole[..., :3], whole], -1))
    seen = []
    part.register_hook(seen.append)
    part.sum().backward()
    assert len(seen) == 1
    assert whole.grad[..., :3].min() == 1 and whole.grad[..., 3:].max() == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.mul_(2.0),
        lambda x: x.sub_(torch.tensor(1.0)),
        lambda x: x.clamp_(-0.1, 0.1),
        lambda x: x.fill_(2.0),
        lambda x: x.data.neg_(),
        lambda x: x[0].tanh_(),
    ],
)
def test_a_change_of_each_value_by_numbers_is_made_on_the_shard(logits, change):
    whole = logits.shard.clone()
    change(whole)
    change(logits)
    assert torch.equal(logits.shard, whole)


@pytest.mark.parametrize("shape", [(1,), (3,), (4, 1)])
def test_targets_of_another_shape_are_refused_as_by_torch(logits, shape):
    wanted = torch.zeros(shape).long()
    with pytest.raises((ValueError, RuntimeError)) as plain:
        F.cross_entropy(torch.zeros(4, ROWS), wanted)
    with pytest.raises(type(plain.value)) as sharded:
        F.cross_entropy(logits[0], wanted)
    assert str(sharded.value) == str(plain.value)
