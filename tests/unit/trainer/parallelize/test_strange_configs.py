"""Directories of checkpoints that strangers wrote: nothing in them is run."""

import json

import pytest
from heterotp_trainer.data.tokenizer import tokenizer_of
from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.config_model import empty_model

CODE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nclass Strange: pass\n"


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint whose config and tokenizer name classes of a module beside them."""
    named = {"auto_map": {each: "strange.Strange" for each in ("AutoConfig", "AutoModelForCausalLM")}}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "strange", "vocab_size": 10, **named}))
    tokenizer = {"auto_map": {"AutoTokenizer": ["strange.Strange", None]}, "tokenizer_class": "Strange"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "strange.py").write_text(CODE)
    return tmp_path


@pytest.mark.parametrize("read", [empty_model, tokenizer_of])
def test_code_beside_a_checkpoint_is_not_run(checkpoint, read):
    with pytest.raises(InputError):
        read(checkpoint)
    assert not (checkpoint / "ran").exists()


SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
UNFIT = {
    "a word for a number": (
        {"model_type": "llama", "hidden_size": "wide"},
        "Validation error for field 'hidden_size': T",
    ),
    "heads that do not divide": (
        {"model_type": "llama", **SIZES, "hidden_size": 33},
        "Class validation error for validator 'validate_architecture': ValueError: The hidden size (33) is not a multi",
    ),
    "no heads": ({"model_type": "llama", **SIZES, "num_attention_heads": 0}, "ZeroDivisionError: integer division"),
    "no word on the model": (SIZES, "Unrecognized model in "),
    "no language model": ({"model_type": "t5"}, "no model can be made of it: Unrecognized configuration class <class "),
    "no object": ([1], "Unrecognized model in "),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_config_that_no_model_can_be_made_of_is_refused_with_one_line(tmp_path, case):
    config, message = UNFIT[case]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError) as caught:
        empty_model(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: config.json: {message}")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_config_that_is_torn_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type":')
    with pytest.raises(InputError, match=r"config\.json: .* is not a valid JSON file"):
        empty_model(tmp_path)


def test_a_class_that_is_no_model_is_not_taken(tmp_path):
    config = {"model_type": "llama", "architectures": ["Trainer"], "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert type(empty_model(tmp_path)).__name__ == "LlamaForCausalLM"
