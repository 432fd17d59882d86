"""One rank of the gang behind test_partial_sessions.py: models with norms of each head, trained in sessions.

Called as: partial_sessions.py RANK RANKS FOLDER. The plain model is trained beside. All in float64. Result: by case the
losses of both, the largest error of a parameter, and how many gradients are summed.
"""

import copy
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from heterotp_trainer.parallelize.model import parallelize
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.gradients import is_partial
from support.ranks.architectures import Wide, batch, plain_model
from support.ranks.parallel_model_checks import error, part_of
from support.ranks.resume_checks import Case, Gang

CLIP, RATE, STEPS = 0.5, 0.5, 12  # every norm of these gradients is larger


@dataclass(frozen=True)
class Partial(Case):
    """A case of an architecture with parameters between its linears."""

    architecture: str = "qwen3"


EVICTED = {
    "strategy": "RESHARD",
    "window": 2,
    "reshard": {"grain": 1, "evict": [1]},
}  # rank 1 owns nothing after a few iterations
CASES = {
    "qwen3": Partial("SGD", {"strategy": "None"}),
    "gemma3": Partial("SGD", {"strategy": "None"}, architecture="gemma3"),
    "qwen3, evicted": Partial("SGD", EVICTED),
}


class InFloat64:
    """A session whose sums are in float64."""

    def __init__(self, session) -> None:
        self.session = session

    def shard(self) -> TPContext:
        tp = self.session.shard()
        tp.dtype = torch.float64
        return tp


def clip(model) -> None:
    """Scale gradients to the norm CLIP, exactly: torch's function adds 1e-6 to the norm."""
    norm = torch.cat([each.grad.flatten() for each in model.parameters()]).norm()
    assert norm > CLIP
    for each in model.parameters():
        each.grad.mul_(CLIP / norm)


def check(gang: Gang, case: Partial, folder: Path) -> dict:
    session = gang.session(case, folder, 1)
    plain = plain_model(case.architecture).train()
    model = parallelize(copy.deepcopy(plain), InFloat64(session))
    optimizers = [torch.optim.SGD(each.parameters(), RATE, momentum=0.9) for each in (model, plain)]
    session.watch(model, optimizers[0])
    session.restore()
    losses = []
    for iteration in range(1, STEPS + 1):
        found = []
        for each, optimizer in zip((model, plain), optimizers, strict=True):
            optimizer.zero_grad()
            with Wide():
                loss = each(**batch(case.architecture, iteration)).loss
                loss.backward()
            found.append(loss.detach())
        session.step(CLIP, loss=found[0])
        clip(plain)
        optimizers[1].step()
        session.boundary(iteration, loss=found[0])
        losses.append([float(each) for each in found])
    facts = {"losses": losses, "partial": sum(map(is_partial, model.parameters()))}
    whole = dict(plain.named_parameters())
    facts["parameters"] = max(error(each, part_of(model, name, whole[name])) for name, each in model.named_parameters())
    facts["heads"] = session.tp.unit_plan.counts("heads")
    session.finish()
    return facts


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    gang = Gang(rank, ranks, folder)
    results = {name: check(gang, case, folder / f"case{number}") for number, (name, case) in enumerate(CASES.items())}
    (folder / f"rank{rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
