"""One rank of the gang behind test_vocabulary.py: embedding, logits and loss on vocabulary rows, against whole ones.

Called as: vocabulary_checks.py RANK RANKS FOLDER. An error is max |a - b|, in float64.
"""

import json
import math
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from heterotp import cross_entropy
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import PhaseClock
from heterotp_trainer.errors import InputError
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.sharded_logits import ShardedLogits
from heterotp_trainer.tensor_parallel.vocabulary import ParallelEmbedding, ParallelLogits
from torch import nn

ROWS, WIDTH, IGNORED = 11, 6, -100
PLANS = {
    2: {"even": (6, 5), "empty": (0, 11)},
    3: {"even": (4, 4, 3), "empty": (5, 0, 6), "one": (0, 0, 11)},
}
LOSSES = {
    "mean": {},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "smoothed": {"label_smoothing": 0.1},
    "other ignored": {"ignore_index": 3},
    "all": {"label_smoothing": 0.2, "reduction": "sum", "ignore_index": 3},
}
USES = {
    "view": lambda x: F.cross_entropy(x.view(-1, ROWS), torch.arange(8)),
    "shifted": lambda x: F.cross_entropy(x[:, :-1].reshape(-1, ROWS), torch.arange(6)),
    "shifted by dots": lambda x: F.cross_entropy(x[..., 1:, :].flatten(0, 1), torch.arange(6)),
    "capped": lambda x: F.cross_entropy((torch.tanh(x / 2.0) * 2.0).float().double().view(8, -1), torch.arange(8)),
    "chosen": lambda x: F.cross_entropy(x[torch.tensor([[True] * 4, [False] * 4])], torch.arange(4)),
    "module": lambda x: nn.CrossEntropyLoss()(x.flatten(0, 1), torch.arange(8)),
    "classes second": lambda x: F.cross_entropy(x.transpose(1, 2), torch.arange(8).view(2, 4)),
    "weighted": lambda x: F.cross_entropy(x.view(8, ROWS), torch.arange(8), weight=torch.arange(1.0, 12).double()),
    "probabilities": lambda x: F.cross_entropy(x.view(8, ROWS), torch.full((8, ROWS), 1 / ROWS).double()),
    "softmax": lambda x: (torch.softmax(x, -1) * torch.linspace(0, 1, ROWS)).sum(),
    "one column": lambda x: x[..., 4].sum() + x[0, 0, 1:3].sum(),
    "last token": lambda x: torch.logsumexp(x[:, -1], -1).sum(),
    "library": lambda x: cross_entropy(x, torch.arange(8).view(2, 4)),
    "two of them": lambda x: (x + 2 * x).square().mean(),
    "one column of chosen rows": lambda x: x[torch.tensor([[True, False] * 2] * 2), 3].square().sum(),
    "targets of bytes": lambda x: F.cross_entropy(x.view(8, ROWS), torch.arange(8, dtype=torch.uint8)),
    "chosen values": lambda x: x[x > 0].square().sum(),
    "an index before dots": lambda x: x[1, 2, 3, ...].square(),
    "scaled by a tensor that is trained": lambda x: (x * scale_of(x)).square().sum(),
    "changed by numbers": lambda x: torch.softmax((x * 1).mul_(3.0).clamp_(max=1.0).sub_(0.5).double(), -1)[
        ..., 4
    ].sum(),
    "a changed copy": lambda x: torch.softmax(banned(x.clone()), -1)[..., 4].sum(),
    "a changed copy of a type": lambda x: torch.softmax(banned(x.to(torch.float64, copy=True)), -1)[..., 4].sum(),
    "bits as another type": lambda x: (x.float().view(torch.int32) == 0).sum() + x.sum(),
}


def scale_of(x):
    """Return a number that has a gradient, which is a sum over all columns."""
    return x[..., 2].mean()


def banned(logits):
    """Set columns of two rows to -inf, as what generation of transformers does not want."""
    logits[0, 1, [1, 8]] = -torch.inf
    logits.masked_fill_(torch.arange(ROWS) == 2, -torch.inf)
    return logits


def scattered(counts) -> UnitPlan:
    """Return the plan with these counts, whose ranks own rows from all over."""
    left, owners = list(counts), []
    for row in range(ROWS):
        rank = max(range(len(left)), key=lambda r: (left[r], (r + row) % len(left)))
        owners.append(rank)
        left[rank] -= 1
    owned = tuple(tuple((u, u + 1) for u in range(ROWS) if owners[u] == rank) for rank in range(len(counts)))
    return UnitPlan(((),) * len(counts), ((),) * len(counts), owned)


def error(got, want) -> float:
    got, want = got.detach() + 0.0, want.detach()
    assert got.shape == want.shape, (got.shape, want.shape)
    same = torch.isnan(got) & torch.isnan(want)
    return float(torch.where(same, 0.0, (got - want).abs()).max()) if want.numel() else 0.0


def sharded(whole, tp):
    rows = torch.tensor(tp.owned("vocab"), dtype=torch.long)
    part = whole.detach()[..., rows].clone().requires_grad_()
    return part, ShardedLogits(part, tp, ROWS), rows


def losses(tp) -> dict[str, float]:
    draw, found = torch.Generator().manual_seed(1), {}
    logits = (30 * torch.randn(8, ROWS, generator=draw)).double().requires_grad_()
    targets = torch.tensor([0, 3, IGNORED, 10, 5, 3, IGNORED, 7])
    for name, options in LOSSES.items():
        wanted = torch.where(targets == IGNORED, options.get("ignore_index", IGNORED), targets)
        want = F.cross_entropy(logits, wanted, **options)
        weight = torch.linspace(1, 2, want.numel()).double().view(want.shape)
        (dwant,) = torch.autograd.grad((want * weight).sum(), logits)
        part, whole, rows = sharded(logits, tp)
        got = F.cross_entropy(whole, wanted, **options)
        (dgot,) = torch.autograd.grad((got * weight).sum(), part)
        found[name] = max(error(got, want), error(dgot, dwant[:, rows]))
    nothing = torch.full((8,), IGNORED)
    found["all ignored"] = float(not math.isnan(float(F.cross_entropy(sharded(logits, tp)[1], nothing).detach())))
    return found


def uses(tp) -> dict[str, float]:
    draw, found = torch.Generator().manual_seed(2), {}
    logits = torch.randn(2, 4, ROWS, generator=draw).double().requires_grad_()
    for name, use in USES.items():
        (dwant,) = torch.autograd.grad(want := use(logits), logits)
        part, whole, rows = sharded(logits, tp)
        (dgot,) = torch.autograd.grad(got := use(whole), part)
        found[name] = max(error(got, want), error(dgot, dwant[..., rows]))
    _, whole, _ = sharded(logits, tp)
    kept = isinstance(whole[:, 1:].float(), ShardedLogits) and whole.shape == logits.shape and whole.requires_grad
    found["facts"] = float(not kept or not torch.equal(whole.argmax(-1), logits.argmax(-1)))
    try:
        F.cross_entropy(whole.view(8, -1), torch.full((8,), ROWS))
        found["outside"] = 1.0
    except InputError as refused:
        found["outside"] = float(f"target {ROWS} is outside of the vocabulary of {ROWS} rows" not in str(refused))
    return found


def tied(tp) -> dict[str, float]:
    """Compare embedding and logits of one parameter with the whole ones."""
    draw = torch.Generator().manual_seed(3)
    plain = nn.Embedding(ROWS, WIDTH, padding_idx=2).double()
    ids, weight = torch.tensor([[1, 2, 0, 10], [5, 5, 2, 7]]), torch.randn(ROWS, WIDTH, generator=draw).double()
    plain.weight.data.copy_(weight)
    want = F.cross_entropy(F.linear(torch.tanh(plain(ids)), plain.weight).view(8, ROWS), ids.view(-1))
    want.backward()
    embedding = ParallelEmbedding.adopt(nn.Embedding(ROWS, WIDTH, padding_idx=2), tp, name="embed")
    head = ParallelLogits(tp, ROWS, WIDTH, name="head", seed=None, bias=False)
    rows = torch.tensor(tp.owned("vocab"), dtype=torch.long)
    shared = nn.Parameter(weight[rows])
    shared.heterotp = head.spec
    embedding.weight = head.weight = shared
    got = F.cross_entropy(head(torch.tanh(embedding(ids))).view(8, ROWS), ids.view(-1))
    got.backward()
    found = {"tied": max(error(got, want), error(shared.grad, plain.weight.grad[rows]))}
    found["phase"] = float(tp.clock.current != "fixed")
    return found


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    results = {}
    for name, counts in PLANS[ranks].items():
        device = Device(torch.device("cpu"), "cpu")
        plan = scattered(counts)
        tp = TPContext(dist.group.WORLD, rank, ranks, device, PhaseClock(), plan, torch.float64)
        results[name] = {**losses(tp), **uses(tp), **tied(tp)}
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
