"""A Llama trained by one process. The scripts beside it train it on several ranks, each in another way.

python examples/own-llama/plain.py CHECKPOINT RESULT
"""

import sys

import torch
from transformers import AutoModelForCausalLM

ITERATIONS, BATCH, TOKENS, RATE, CLIP = 10, 4, 32, 1e-3, 1.0


def batch(iteration: int, vocabulary: int) -> torch.Tensor:
    """Return token ids [B, T] that are the same in every process."""
    draw = torch.Generator().manual_seed(iteration)
    return torch.randint(vocabulary, (BATCH, TOKENS), generator=draw)


def main() -> None:
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for iteration in range(ITERATIONS):
        tokens = batch(iteration, model.config.vocab_size)
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        print(f"iteration {iteration + 1}: loss {loss.item():.6f}", flush=True)
    model.save_pretrained(sys.argv[2])


main()
