"""Loads a fine-tuned model with plain transformers and lets it write.

python examples/finetune/load.py finetune/run/exported
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(folder: str) -> None:
    """Print what the model continues "The " with."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer("The ", return_tensors="pt", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        written = model.generate(prompt, max_new_tokens=40, do_sample=False, pad_token_id=0)
    print(repr(tokenizer.decode(written[0])))


if __name__ == "__main__":
    main(sys.argv[1])
