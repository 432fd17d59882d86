"""A forward that computes with a cut parameter outside of its layer is refused in the first iteration, by name."""

import pytest
import torch
import torch.nn.functional as F
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.errors import InputError
from heterotp_trainer.model.checks import DrawCheck
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.tensor_parallel.unit_spec import mark_sharded
from heterotp_trainer.tensor_parallel.vocabulary import ParallelEmbedding
from torch import nn
from torch.overrides import _get_current_function_mode
from torch.utils.checkpoint import checkpoint

CPU = torch.device("cpu")
IDS = torch.tensor([[1, 2], [0, 3]])
USES = {
    "logits by the embedding": lambda model, x: F.linear(x, model.embedding.weight),
    "a product": lambda model, x: x @ model.embedding.weight.t(),
    "a norm": lambda model, x: x / model.mlp.fc1.weight.norm(),
    "in a list": lambda model, x: F.linear(x, torch.cat([model.embedding.weight, model.head.weight])),
    "a change": lambda model, x: x + model.mlp.fc1.weight.data.mul_(1.0).sum(),
}
HARMLESS = {
    "facts": lambda model, x: x.to(model.embedding.weight.dtype).view(-1, model.embedding.weight.shape[1]),
    "a whole parameter": lambda model, x: F.linear(x, model.head.weight),
    "a layer": lambda model, x: model.mlp(x),
    "made like it": lambda model, x: x.type_as(model.mlp.fc1.weight) + model.mlp.fc1.weight.new_zeros(3),
    "a frozen part": lambda model, x: model.mlp.eval()(x),
    "a layer's forward": lambda model, x: model.mlp.fc2(checkpoint(model.mlp.fc1.forward, x, use_reentrant=False)),
    "recomputed": lambda model, x: checkpoint(model.mlp, x, use_reentrant=False),
}


class Model(nn.Module):
    """Embedding and hidden units are cut, the head is whole; `use` ends the forward."""

    def __init__(self, use):
        super().__init__()
        plan = UnitPlan.even(1, 0, 4, 5)
        tp = TPContext(None, 0, 1, Device(CPU, "cpu"), NullClock(), plan)
        self.embedding = ParallelEmbedding.adopt(nn.Embedding(5, 3), tp, name="embedding")
        self.embedding.weight = mark_sharded(nn.Parameter(torch.randn(5, 3)), self.embedding.spec)
        self.mlp, self.head, self.use = ParallelMLP(tp, 3, 4, name="mlp", seed=0), nn.Linear(3, 1), use

    def forward(self, ids):
        return self.use(self, self.mlp(self.embedding(ids)))


@pytest.mark.parametrize("use", USES)
def test_a_use_outside_of_the_layer_is_refused_by_name(use):
    DrawCheck(model := Model(USES[use]), CPU)
    with pytest.raises(InputError, match=r"^model: (embedding|mlp\.fc1)\.weight: \w+ of a parameter that is cut"):
        model(IDS)
    assert _get_current_function_mode() is None


@pytest.mark.parametrize("use", HARMLESS)
def test_other_uses_pass_in_training_and_in_the_backward_pass(use):
    check = DrawCheck(model := Model(HARMLESS[use]), CPU)
    model(IDS).sum().backward()
    assert _get_current_function_mode() is None
    assert model.embedding.weight.grad.abs().max() > 0
    check.iteration_ended(1)
    model(IDS)


def test_evaluation_and_later_iterations_are_not_looked_at():
    check = DrawCheck(model := Model(USES["a norm"]), CPU)
    model.eval()(IDS)
    model.train()
    check.iteration_ended(1)
    model(IDS)


def test_what_is_done_after_ctrl_c_in_the_first_forward_is_not_refused():
    def stopped(model, x):
        raise KeyboardInterrupt

    DrawCheck(model := Model(stopped), CPU)
    with pytest.raises(KeyboardInterrupt):
        model(IDS)
    try:
        assert model.embedding.weight.detach().norm() > 0
    finally:
        while _get_current_function_mode() is not None:
            _get_current_function_mode().__exit__(None, None, None)


def test_an_error_of_the_forward_leaves_nothing_behind():
    def fails(model, x):
        raise RuntimeError("too large")

    check = DrawCheck(model := Model(fails), CPU)
    with pytest.raises(RuntimeError, match="too large"):
        model(IDS)
    assert _get_current_function_mode() is None and not check._entered
    model.use = HARMLESS["a layer"]
    model(IDS)
