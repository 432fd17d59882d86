"""Writes a small Llama with random weights, and a tokenizer for it, as transformers would save them.

    python examples/finetune/make_checkpoint.py finetune/checkpoint

It stands for a checkpoint that you have: nothing is downloaded. Needs the extra `hf`.
"""

import json
import sys
from pathlib import Path
from pydoc_data.topics import topics

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 1003  # divides by no number of ranks
END = "<|end|>"


def tokenizer() -> Tokenizer:
    """Return a byte-level BPE trained on Python's documentation."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(topics.values(), trainer)
    return made


def main(folder: Path) -> None:
    """Write config.json, model.safetensors, tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=80,
        intermediate_size=250,
        num_hidden_layers=2,
        num_attention_heads=10,
        num_key_value_heads=5,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer().save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    print(f"{folder}: a Llama of {VOCABULARY} tokens with random weights")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
