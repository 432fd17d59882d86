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


def test_a_class_that_is_no_model_is_not_taken(tmp_path):
    config = {"model_type": "llama", "architectures": ["Trainer"], "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert type(empty_model(tmp_path)).__name__ == "LlamaForCausalLM"
