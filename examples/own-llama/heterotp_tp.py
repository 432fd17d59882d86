"""plain.py with HeteroTP: unequal shares, live changes, checkpoints; no rank holds the whole model.

heterotp run examples/own-llama/job.yaml
"""

import sys

import heterotp
import torch
from transformers import AutoConfig, AutoModelForCausalLM

ITERATIONS, BATCH, TOKENS, RATE, CLIP = 10, 4, 32, 1e-3, 1.0


def batch(iteration: int, vocabulary: int) -> torch.Tensor:
    """Return token ids [B, T] that are the same in every process."""
    draw = torch.Generator().manual_seed(iteration)
    return torch.randint(vocabulary, (BATCH, TOKENS), generator=draw)


def main(session: heterotp.Session) -> None:
    config = AutoConfig.from_pretrained(sys.argv[1])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    heterotp.parallelize(model, session)
    heterotp.load_pretrained(model, sys.argv[1])
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    session.watch(model, optimizer)
    for iteration in range(session.restore(), ITERATIONS):
        tokens = batch(iteration, model.config.vocab_size)
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        session.step(CLIP, loss=loss)
        session.boundary(iteration + 1, loss=loss)
        print(f"iteration {iteration + 1}: loss {loss.item():.6f}", flush=True)
    heterotp.save_pretrained(model, sys.argv[2])
    session.finish()


heterotp.run_rank(main)
