"""Learning rates and decay groups of the built-in trainers."""

import pytest
import torch
from heterotp_api.training import ModelShape, Training
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.model.vit import VisionTransformer
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.training.optimizer import adamw
from heterotp_trainer.training.schedules import learning_rate
from torch import nn


def test_a_constant_rate_warms_up():
    training = Training(learning_rate=0.1, warmup_iterations=4)
    assert [learning_rate(training, i, 10) for i in range(5)] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1])


def test_a_cosine_ends_at_0():
    training = Training(learning_rate=0.1, schedule="cosine", warmup_iterations=2)
    assert learning_rate(training, 2, 12) == pytest.approx(0.1)
    assert learning_rate(training, 7, 12) == pytest.approx(0.05)
    assert learning_rate(training, 12, 12) == pytest.approx(0, abs=1e-12)


def test_vectors_do_not_decay():
    matrix, vector = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    groups = adamw([matrix, vector], Training(weight_decay=0.5)).param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert decay == {id(matrix): 0.5, id(vector): 0.0}


def test_betas_and_eps_are_those_of_the_training():
    (group, _) = adamw([nn.Parameter(torch.ones(2, 2))], Training(betas=[0.8, 0.95], eps=1e-6)).param_groups
    assert (group["betas"], group["eps"]) == ((0.8, 0.95), 1e-6)


def test_the_defaults_are_torchs():
    parameter = nn.Parameter(torch.ones(2, 2))
    ours, plain = adamw([parameter], Training()).param_groups[0], torch.optim.AdamW([parameter]).param_groups[0]
    assert (ours["betas"], ours["eps"]) == (plain["betas"], plain["eps"])


@pytest.mark.parametrize(("decays", "expected"), [(True, 0.5), (False, 0.0)])
def test_position_and_class_embeddings_decay_where_it_is_asked_for(decays, expected):
    shape = ModelShape(hidden_size=8, depth=1, heads=2, patch_size=4, ffn_ratio=2)
    tp = TPContext(None, 0, 1, Device(torch.device("cpu"), "cpu"), NullClock(), UnitPlan.even(1, 2, shape.ffn_units))
    model = VisionTransformer(tp, shape, image_size=8, channels=1, classes=3, seed=0)
    training = Training(weight_decay=0.5, decay_embeddings=decays)
    groups = adamw(model.parameters(), training, model.embeddings).param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    found = {name: decay[id(parameter)] for name, parameter in model.named_parameters()}
    assert {found[name] for name in ("class_token", "positions")} == {expected}
    assert (found["patch_weight"], found["head_weight"], found["patch_bias"]) == (0.5, 0.5, 0.0)
    assert sum(len(group["params"]) for group in groups) == len(found)
