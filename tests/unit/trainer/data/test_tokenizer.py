"""Tokenizers: bytes, and those of checkpoints."""

import json

import pytest
from heterotp_trainer.data.tokenizer import ByteTokenizer, check_vocabulary, tokenizer_of
from heterotp_trainer.errors import InputError


def write_tokenizer(folder, words=("<end>", "hello", "world"), **config):
    """Write a tokenizer.json of whole words."""
    import tokenizers

    vocabulary = {word: number for number, word in enumerate(words)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=words[0]))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.save(str(folder / "tokenizer.json"))
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_bytes_are_utf8_and_back():
    tokenizer = ByteTokenizer()
    tokens = tokenizer.encode("grün €")
    assert tokens == list("grün €".encode()) and max(tokens) < tokenizer.end < tokenizer.vocabulary
    assert tokenizer.decode([*tokens, tokenizer.end]) == "grün €"
    assert tokenizer.decode([0xFC, 65]) == "\ufffdA"
    assert tokenizer.encode("\udcfc") == [ord("?")]  # half of a pair, from JSON


def test_a_checkpoint_without_one_is_read_as_bytes(tmp_path):
    assert isinstance(tokenizer_of(tmp_path), ByteTokenizer)


@pytest.mark.parametrize("named", ["<end>", {"content": "<end>", "special": True}])
def test_a_checkpoints_own_tokenizer_is_used(tmp_path, named):
    tokenizer = tokenizer_of(write_tokenizer(tmp_path, eos_token=named))
    assert (tokenizer.vocabulary, tokenizer.end) == (3, 0)
    assert tokenizer.encode("world hello") == [2, 1]
    assert tokenizer.decode([1, 2]) == "hello world"


@pytest.mark.parametrize(("config", "end"), [({"eos_token_id": 0}, 0), ({"eos_token_id": [1, 2]}, 1), ({}, None)])
def test_the_end_token_may_be_in_the_models_config(tmp_path, config, end):
    write_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert tokenizer_of(tmp_path).end == end


def test_a_broken_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json: is no tokenizer: ") as caught:
        tokenizer_of(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_of_another_vocabulary_is_refused(tmp_path):
    tokenizer = tokenizer_of(write_tokenizer(tmp_path))
    check_vocabulary(tokenizer, 3, "model")
    with pytest.raises(InputError, match="model: its tokenizer has tokens up to 2, the model a vocabulary of 2"):
        check_vocabulary(tokenizer, 2, "model")
