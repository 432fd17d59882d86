"""One rank of the gang behind test_architectures.py: compares parallelized models with the plain ones, in float64.

Called as: parallel_model_checks.py RANK RANKS FOLDER. An error is max |a - b|.
"""

import json
import random
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import PhaseClock
from heterotp_trainer.parallelize.model import parallelize
from heterotp_trainer.parallelize.pretrained import initialize, load_pretrained, save_pretrained
from heterotp_trainer.parallelize.replace import shards_of
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.resharding.unit_mover import UnitMover
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.gradients import gradient_norm, scale_gradients, sum_partial
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec
from support.ranks.architectures import (
    CONFIGS,
    HIDDEN,
    ROWS,
    WRITING,
    Wide,
    batch,
    empty_model,
    groups_of,
    maker,
    plain_model,
)
from transformers import AutoModelForCausalLM, GenerationConfig

STEPS, CLIP, LOUD = 4, 0.5, 8.0  # LOUD: a power of 2, so that nothing is rounded
CAUSAL = [name for name in CONFIGS if maker(name) is AutoModelForCausalLM]


class Shares:
    """A session that only gives out shares."""

    def __init__(self, group, rank: int, plan: UnitPlan) -> None:
        self.group, self.rank, self.plan = group, rank, plan

    def shard(self) -> TPContext:
        device = Device(torch.device("cpu"), "cpu")
        group = self.group if self.plan.ranks > 1 else None
        return TPContext(group, self.rank, self.plan.ranks, device, PhaseClock(), self.plan, torch.float64)


def random_plan(name: str, ranks: int, seed: int) -> UnitPlan:
    """Return a plan whose ranks own units from all over, and of each family one rank none (with 2 ranks or more)."""
    draw = random.Random(f"{name}{ranks}{seed}")

    def deal(units: int) -> tuple:
        idle = draw.randrange(ranks) if ranks > 1 else None
        owners = draw.choices([rank for rank in range(ranks) if rank != idle], k=units)
        return tuple(tuple((u, u + 1) for u in range(units) if owners[u] == rank) for rank in range(ranks))

    return UnitPlan(deal(groups_of(name)), deal(HIDDEN), deal(ROWS) if name != "vit" else ())


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    assert got.shape == want.shape, (got.shape, want.shape)
    return float((got.detach() - want.detach()).abs().max()) if want.numel() else 0.0


def part_of(model, name: str, whole: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a whole tensor of the plain model."""
    shards, spec = shards_of(model), shard_spec(model.get_parameter(name))
    if spec is None:
        return whole
    return spec.cut(shards.layouts[name].canonical(whole, spec), shards.tp.owned(spec.family))


def one_call(model, plain, inputs: dict) -> dict[str, float]:
    """Return the errors of residual stream, loss and every gradient of one forward and backward."""
    with Wide():
        got, want = (each(**inputs, output_hidden_states=True) for each in (model, plain))
        got.loss.backward()
        want.loss.backward()
    sum_partial(model.parameters(), shards_of(model).tp)
    streams = zip(got.hidden_states, want.hidden_states, strict=True)
    found = {"stream": max(error(a, b) for a, b in streams), "loss": error(got.loss, want.loss)}
    found["logits"] = error(torch.softmax(got.logits, -1), torch.softmax(want.logits, -1))
    return {**found, "gradients": gradients_unlike(model, plain)}


def gradients_unlike(model, plain) -> float:
    """Return the largest error of a gradient."""
    whole = dict(plain.named_parameters())
    assert list(whole) == [each for each, _ in model.named_parameters()]
    return max(
        0.0 if p.grad is None and whole[n].grad is None else error(p.grad, part_of(model, n, whole[n].grad))
        for n, p in model.named_parameters()
    )


def steps(model, plain, name: str, ranks: int) -> float:
    """Return the largest error of the loss over some steps with clipping, with a move of units before each."""
    tp, losses = shards_of(model).tp, []
    optimizers = [torch.optim.AdamW(each.parameters(), lr=1e-3) for each in (model, plain)]
    mover = UnitMover(tp, dict(model.named_parameters()), optimizers[0], lambda parameter: ())
    if name not in ("gemma2", "gemma3", "vit"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    for step in range(STEPS):
        mover.move(random_plan(name, ranks, 100 + step))
        found = []
        for each, optimizer in zip((model, plain), optimizers, strict=True):
            optimizer.zero_grad()
            with Wide():
                for micro in range(2):
                    loss = each(**batch(name, 10 * step + micro)).loss / 2
                    loss.backward()
            found.append(float(loss.detach()))
        sum_partial(model.parameters(), tp)
        norm = gradient_norm(model.parameters(), tp)
        scale_gradients(model.parameters(), min(1.0, CLIP / norm))
        scale_gradients(plain.parameters(), min(1.0, CLIP / norm))  # norms of fp32 kernels differ by rounding
        for optimizer in optimizers:
            optimizer.step()
        losses.append(abs(found[0] - found[1]))
    return float(torch.tensor(losses).max())  # NaN where one is NaN


@torch.no_grad()
def scale(model, names: list[str], factor: float) -> None:
    for name in names:
        model.get_parameter(name).mul_(factor)


def generated_unlike(model, plain, name: str) -> float:
    """Return how many tokens differ in what both models write, with a cache of keys and values; one text is padded.

    First the likeliest tokens, then no token twice, for which generation changes a copy of the logits in place.
    """
    ids, mask = batch(name, 7)["input_ids"], torch.ones(2, 9, dtype=torch.long)
    mask[1, :3] = 0
    # no token ends a text
    greedy = {"max_new_tokens": 7, "do_sample": False, "pad_token_id": 0, "eos_token_id": ROWS, "use_cache": True}
    settings = [GenerationConfig(**greedy), GenerationConfig(**greedy, no_repeat_ngram_size=1)]
    written = []
    grown = [each for each, weight in plain.named_parameters() if weight.dim() == 2 and len(weight) != ROWS]
    for each in (model, plain):
        each.eval()
        scale(each, grown, LOUD)  # else some architectures repeat one token, whatever their layers compute
        with Wide():
            texts = [each.generate(ids, attention_mask=mask, generation_config=how) for how in settings]
            written.append(torch.stack(texts))
        scale(each, grown, 1 / LOUD)
        each.train()
    assert written[0].shape == written[1].shape == (2, 2, 9 + 7), [each.shape for each in written]
    assert all(len(set(text[9:])) == 7 for text in written[1][1].tolist())
    return float((written[0] != written[1]).sum())


def drawn_alike(name: str, session: Shares) -> float:
    """Return the error of weights that this rank draws, against those that a rank with all units draws."""
    mine, all_units = empty_model(name), empty_model(name)
    initialize(parallelize(mine, session), seed=5)
    alone = UnitPlan.even(1, groups_of(name), HIDDEN, ROWS if name != "vit" else 0)
    initialize(parallelize(all_units, Shares(None, 0, alone)), seed=5)
    whole, layouts = dict(all_units.named_parameters()), shards_of(all_units).layouts
    errors = []
    for each, parameter in mine.named_parameters():
        value, spec = whole[each].detach(), shard_spec(parameter)
        if spec is not None:
            value = layouts[each].of_model(value, spec)
        errors.append(error(parameter, part_of(mine, each, value)))
    return max(errors)


def check(name: str, group, rank: int, ranks: int, folder: Path) -> dict[str, float]:
    stored, exported = folder / f"{name}-{ranks}", folder / f"{name}-{ranks}-exported"
    plain = plain_model(name)
    if rank == 0:
        plain.save_pretrained(stored)
    dist.barrier()
    session = Shares(group, rank, random_plan(name, ranks, 0))
    model = load_pretrained(parallelize(empty_model(name), session), stored)
    for each, buffer in model.named_buffers():  # the plain model computed some in fp32
        plain.get_buffer(each).copy_(buffer)
    model.train()
    plain.train()
    found = one_call(model, plain, batch(name, 1))
    save_pretrained(model, exported)
    if rank == 0:
        again = maker(name).from_pretrained(exported, dtype=torch.float64).state_dict()
        same = again.keys() == plain.state_dict().keys()
        found["exported"] = float(not same or any(not torch.equal(again[n], t) for n, t in plain.state_dict().items()))
    writes = name in CAUSAL and ranks in WRITING
    before = generated_unlike(model, plain, name) if writes else 0.0
    found["steps"] = steps(model, plain, name, ranks)
    if writes:  # the units have moved meanwhile
        found["generated"] = before + generated_unlike(model, plain, name)
    found["drawn"] = drawn_alike(name, session)
    return found


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=180))
    results = {name: check(name, dist.group.WORLD, rank, ranks, folder) for name in CONFIGS}
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
