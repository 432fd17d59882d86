"""A model of transformers in the loop of its user: `own_llama.py PRECISION RECOMPUTE MICRO ITERATIONS [CHECKPOINT]`.

RECOMPUTE: `plain` or `recompute`. MICRO: micro-batches of a batch. CHECKPOINT: a directory to begin from, else weights
are drawn. At the end the model is written to `exported` in the run directory.
"""

import os
import sys
from pathlib import Path

import heterotp
import torch
from heterotp_api.names import Env
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

PRECISION, RECOMPUTE, MICRO, ITERATIONS = sys.argv[1], sys.argv[2] == "recompute", int(sys.argv[3]), int(sys.argv[4])
SIZES = {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 61}
CONFIG = LlamaConfig(**SIZES, num_attention_heads=8, num_key_value_heads=4, tie_word_embeddings=True, use_cache=False)
BATCH, TOKENS = 8, 12


def main(session):
    config = AutoConfig.from_pretrained(sys.argv[5]) if len(sys.argv) > 5 else CONFIG
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    heterotp.parallelize(model, session)
    if len(sys.argv) > 5:
        heterotp.load_pretrained(model, sys.argv[5])
    else:
        heterotp.initialize(model, seed=3)
    if RECOMPUTE:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    session.watch(model, optimizer, iterations=ITERATIONS)
    draw = torch.Generator().manual_seed(3)
    text = torch.randint(3, 61, (8,), generator=draw).repeat(40)  # a period that can be learnt
    for iteration in range(session.restore(), ITERATIONS):
        starts = torch.randint(0, 200, (BATCH,), generator=torch.Generator().manual_seed(iteration))
        ids = torch.stack([text[start : start + TOKENS] for start in starts])
        optimizer.zero_grad()
        total = torch.zeros(())
        for part in ids.chunk(MICRO):
            (part,) = session.batch(part)
            loss = model(input_ids=part, labels=part).loss / MICRO
            loss.backward()
            total += loss.detach().cpu()
        session.step(1.0, loss=total)
        if session.boundary(iteration + 1, loss=total, samples=BATCH).stop:
            return session.finish(state="stopped")
    heterotp.save_pretrained(model, Path(os.environ[Env.WORKDIR]) / "exported")
    session.finish()


heterotp.run_rank(main, precision=PRECISION)
