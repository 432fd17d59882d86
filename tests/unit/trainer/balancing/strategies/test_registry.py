"""Every strategy and selection of the api is registered once, with one signature."""

import inspect
from typing import get_args

import pytest
from heterotp_api.strategies import SELECTIONS, Selection, Strategy
from heterotp_api.strategies import STRATEGIES as TRAITS
from heterotp_trainer.balancing.strategies import STRATEGIES


def test_every_strategy_of_the_api_is_registered():
    assert set(STRATEGIES) == set(TRAITS) == set(get_args(Strategy))


def test_every_selection_of_the_api_is_registered():
    assert set(SELECTIONS) == set(get_args(Selection))


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_is_a_function_of_its_own_file_with_the_one_signature(name):
    function = STRATEGIES[name]
    assert function.__module__.rpartition(".")[2] == name.lower()
    assert list(inspect.signature(function).parameters) == ["situation"]
