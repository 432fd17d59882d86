"""Learning rates and decay groups of the built-in trainers."""

import pytest
import torch
from heterotp_api.training import Training
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
