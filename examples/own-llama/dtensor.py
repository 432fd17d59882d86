"""plain.py with PyTorch's parallelize_module: equal shares of whole K/V heads, a plan written by hand.

torchrun --nproc-per-node 2 examples/own-llama/dtensor.py CHECKPOINT RESULT
"""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import AutoModelForCausalLM

ITERATIONS, BATCH, TOKENS, RATE, CLIP = 10, 4, 32, 1e-3, 1.0


def batch(iteration: int, vocabulary: int) -> torch.Tensor:
    """Return token ids [B, T] that are the same in every process."""
    draw = torch.Generator().manual_seed(iteration)
    return torch.randint(vocabulary, (BATCH, TOKENS), generator=draw)


def shard(model: torch.nn.Module) -> None:
    """Cut the model, which every rank has loaded whole."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Replicate()),
    }
    for number in range(model.config.num_hidden_layers):
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
            plan[f"model.layers.{number}.{name}"] = ColwiseParallel()
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            plan[f"model.layers.{number}.{name}"] = RowwiseParallel()
    parallelize_module(model, mesh, plan)


def clip(model: torch.nn.Module) -> None:
    """Scale the gradients; torch's own function refuses a model of both tensors and DTensors."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norms = [g.norm().full_tensor() if isinstance(g, DTensor) else g.norm() for g in grads]
    factor = torch.clamp(CLIP / (torch.stack(norms).norm() + 1e-6), max=1.0)
    for grad in grads:
        (grad.to_local() if isinstance(grad, DTensor) else grad).mul_(factor)


def main() -> None:
    dist.init_process_group("gloo")
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
    shard(model)
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
    whole = {n: t.full_tensor() if isinstance(t, DTensor) else t for n, t in model.state_dict().items()}
    if dist.get_rank() == 0:
        model.save_pretrained(sys.argv[2], state_dict=whole)
    dist.destroy_process_group()


main()
