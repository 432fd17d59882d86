"""plain.py with transformers' own tensor parallelism: equal shares of whole K/V heads.

torchrun --nproc-per-node 2 examples/own-llama/tp_plan.py CHECKPOINT RESULT
"""

import sys

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

ITERATIONS, BATCH, TOKENS, RATE, CLIP = 10, 4, 32, 1e-3, 1.0


def batch(iteration: int, vocabulary: int) -> torch.Tensor:
    """Return token ids [B, T] that are the same in every process."""
    draw = torch.Generator().manual_seed(iteration)
    return torch.randint(vocabulary, (BATCH, TOKENS), generator=draw)


def clip(model: torch.nn.Module) -> None:
    """Scale the gradients; torch's own function refuses a model of both tensors and DTensors."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norms = [g.norm().full_tensor() if isinstance(g, DTensor) else g.norm() for g in grads]
    factor = torch.clamp(CLIP / (torch.stack(norms).norm() + 1e-6), max=1.0)
    for grad in grads:
        (grad.to_local() if isinstance(grad, DTensor) else grad).mul_(factor)


def main() -> None:
    dist.init_process_group("gloo")
    config = DistributedConfig(tp_plan="auto", tp_size=dist.get_world_size())
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], distributed_config=config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for iteration in range(ITERATIONS):
        tokens = batch(iteration, model.config.vocab_size)
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        clip(model)
        optimizer.step()
        print(f"iteration {iteration + 1}: loss {loss.item():.6f}", flush=True)
    model.save_pretrained(sys.argv[2])
    dist.destroy_process_group()


main()
