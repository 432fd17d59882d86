"""What needs whole parameters is refused, or told, where a rank holds its units only."""

import pytest
import torch
from heterotp_trainer.checkpoint.contents import Contents
from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.checkpoint_names import model_names
from heterotp_trainer.tensor_parallel.unit_spec import ffn, mark_sharded
from heterotp_trainer.tensor_parallel.whole_only import DRAWN, refuse_drawing_units, tell_of_units
from torch import nn


@pytest.fixture
def refusing(monkeypatch):
    for name in DRAWN:
        monkeypatch.setattr(nn.init, name, getattr(nn.init, name))  # put back afterwards
    refuse_drawing_units()


def cut():
    layer = nn.Linear(4, 8)
    mark_sharded(layer.weight, ffn(8)["fc1"])
    return layer


@pytest.mark.parametrize("name", DRAWN)
def test_units_are_not_drawn_alike_on_all_ranks(refusing, name):
    whole, arguments = nn.Linear(4, 8).weight, (0.1,) if name == "sparse_" else ()
    getattr(nn.init, name)(whole, *arguments)
    with pytest.raises(InputError, match=rf"^nn.init.{name}: the parameter is cut: .* before they are cut$"):
        getattr(nn.init, name)(cut().weight, *arguments)


def test_what_draws_nothing_stays_and_refusing_twice_is_as_once(refusing):
    drawn, layer = nn.init.normal_, cut()
    refuse_drawing_units()
    assert nn.init.normal_ is drawn
    assert nn.init.zeros_(layer.weight).abs().max() == 0
    assert nn.init.constant_(layer.weight, 2.0).min() == 2


def test_the_state_of_a_cut_model_is_told_once(capsys):
    model, whole = nn.Sequential(cut()), nn.Sequential(nn.Linear(2, 2))
    tell_of_units(model)
    tell_of_units(whole)
    held = Contents(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert not held.buffers and model_names(model, ["0.weight"])  # saving and loading of our own
    assert capsys.readouterr().err == ""
    assert set(model.state_dict()) == {"0.weight", "0.bias"} and torch.equal(
        model.state_dict()["0.bias"], model[0].bias
    )
    whole.state_dict()
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("note: state_dict() of a model that is cut holds the units of this rank only: ")
