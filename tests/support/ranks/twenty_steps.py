"""One rank of the gang behind test_twenty_steps.py: models trained as plain torch trains them, in fp32 and in bf16.

Called as: twenty_steps.py RANK RANKS FOLDER. Result: by precision and architecture the largest
relative errors of the losses and of the norms of the gradients, and how many updates were clipped.
"""

import copy
import json
import sys
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from heterotp_trainer.parallelize.model import parallelize
from heterotp_trainer.parallelize.replace import shards_of
from heterotp_trainer.resharding.unit_mover import UnitMover
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.gradients import gradient_norm, scale_gradients, sum_partial
from support.ranks.architectures import CONFIGS, batch, maker
from support.ranks.parallel_model_checks import Shares, random_plan

STEPS, PARTS, CLIP, RATE, MOVES = 20, 2, 0.5, 1e-3, 4  # PARTS of a batch; MOVES: steps from one move to the next
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


class InPrecision(Shares):
    """Shares of ranks that compute in one precision."""

    dtype = torch.float32

    def shard(self) -> TPContext:
        tp = super().shard()
        tp.dtype = self.dtype
        return tp


def gradients(model, name: str, step: int) -> float:
    """Add up the gradients of one step's parts of a batch; return the mean loss."""
    losses = []
    for part in range(PARTS):
        drawn = batch(name, STEPS * part + step)
        inputs = {key: value.float() if value.is_floating_point() else value for key, value in drawn.items()}
        loss = model(**inputs).loss / PARTS
        loss.backward()
        losses.append(float(loss.detach()))
    return sum(losses)


def check(name: str, dtype: torch.dtype, ranks: int, rank: int) -> dict[str, float]:
    """Return the errors of STEPS steps of AdamW against the plain model's, on rank 0.

    Rank 0 trains the plain model beside its shares; the others only their shares.
    """
    torch.manual_seed(0)
    plain = maker(name).from_config(CONFIGS[name]).train()
    shares = InPrecision(dist.group.WORLD, rank, random_plan(name, ranks, 0))
    shares.dtype = dtype
    model = parallelize(copy.deepcopy(plain), shares)
    tp, trained = shards_of(model).tp, [model, plain] if rank == 0 else [model]
    model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizers = [torch.optim.AdamW(each.parameters(), lr=RATE) for each in trained]
    mover = UnitMover(tp, dict(model.named_parameters()), optimizers[0], lambda parameter: ())
    cast = partial(torch.autocast, "cpu", dtype) if dtype == torch.bfloat16 else nullcontext
    errors, clipped = [[0.0, 0.0]], 0
    for step in range(STEPS):
        if step % MOVES == 0:
            mover.move(random_plan(name, ranks, 100 + step))
        got = gradients(model, name, step)
        sum_partial(model.parameters(), tp)
        norm = gradient_norm(model.parameters(), tp)
        scale_gradients(model.parameters(), min(1.0, CLIP / norm))
        clipped += norm > CLIP
        if rank == 0:
            with cast():
                want = gradients(plain, name, step)
            wanted = float(torch.nn.utils.clip_grad_norm_(plain.parameters(), CLIP))
            errors.append([abs(got - want) / want, abs(norm - wanted) / wanted])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    loss, of_norm = torch.tensor(errors).amax(0).tolist()  # NaN where one is NaN
    return {"loss": loss, "norm": of_norm, "clipped": clipped}


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=180))
    results = {
        precision: {name: check(name, dtype, ranks, rank) for name in CONFIGS}
        for precision, dtype in PRECISIONS.items()
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
