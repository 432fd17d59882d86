"""Rows of the vocabulary that change rank leave training as it was, tied to the logits or not."""

import pytest
from support.ranks.vocabulary_moves import RECIPES

RANKS = 3


def results(gang, name):
    return [each[name] for each in gang("vocabulary_moves.py", RANKS)]


def test_under_every_plan_loss_and_gradients_are_those_of_plain_torch(gang):
    found = results(gang, "plans")
    assert all(len(each) == 10 for each in found)
    assert max(error for each in found for errors in each.values() for error in errors.values()) <= 1e-10


@pytest.mark.parametrize("recipe", RECIPES)
def test_ten_steps_with_moves_of_rows_equal_ten_without(gang, recipe):
    for found in results(gang, recipe):
        assert found["loss"] <= 1e-10 and found["state"] <= 1e-8
        assert (found["identity"], found["bits"], found["sizes"], found["learned"]) == (0, 0, 0, 0)
