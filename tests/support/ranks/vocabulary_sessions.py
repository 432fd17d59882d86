"""One rank of the gang behind test_vocabulary_sessions.py: a language model in sessions, under every kind of policy.

Called as: vocabulary_sessions.py RANK RANKS FOLDER. Sums are in float64. Result: by case what this rank saw.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
from heterotp_trainer.checkpoint import stream
from heterotp_trainer.plans.unit_plan import FAMILIES
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import ParallelLinear
from support.language_model import LanguageModel, tokens_of
from support.ranks.resume_checks import CALM, Case, Gang
from torch import Tensor, nn

AFTER, MOST = 4, 100  # iterations with a plan's effect, and at most before it


def fixed(strategy, rank, **more):
    """Return a policy that takes half of the columns of one rank."""
    block = {"grain": 1, "fixedRatio": 0.5, "ranks": [rank], **more}
    return {"strategy": strategy, strategy.lower(): block}


SEMI = {"strategy": "SEMI", "semi": {"zero": {"grain": 1}, "mig": {"grain": 1}}}


@dataclass(frozen=True)
class Language(Case):
    """A case of the language model; tied: embedding and logits are one weight. after: iterations with the plan."""

    policy: dict = field(default_factory=lambda: {"strategy": "None"})
    tied: bool = False
    after: int = AFTER


CASES = {
    "undisturbed": Language(),
    "undisturbed, tied": Language(tied=True),
    "ZERO": Language(policy=fixed("ZERO", 1, maskPrunedUpdate=True), reduces=True),
    "ZERO, tied": Language(policy=fixed("ZERO", 1, maskPrunedUpdate=True), reduces=True, tied=True),
    "ZERO Pri, Same": Language(policy=fixed("ZERO", 1, selection="Pri", imputation="Same"), reduces=True),
    "MIG": Language(policy=fixed("MIG", 2), reduces=True),
    "MIG scatterGather, tied": Language(policy=fixed("MIG", 2, primitive="scatterGather"), reduces=True, tied=True),
    "SEMI": Language(policy=SEMI | CALM, straggler=True, reduces=True),
    "RESHARD": Language(policy={"strategy": "RESHARD", "reshard": {"grain": 1}} | CALM, straggler=True),
    "AUTO": Language(policy={"strategy": "AUTO", "reshard": {"grain": 1, "evict": [1]}}),
    "AUTO, tied": Language(policy={"strategy": "AUTO", "reshard": {"grain": 1, "evict": [1]}}, tied=True),
}


class Run:
    """One training of a case in a session of its own."""

    rate = 0.5

    def __init__(self, session, case: Language) -> None:
        self.session, self.case = session, case
        torch.manual_seed(0)  # replicated parameters are equal on all ranks
        self.model = self.make()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.rate, momentum=0.9)
        session.watch(self.model, self.optimizer)
        self.iteration = session.restore()
        self.losses: list[float] = []

    def shard(self) -> TPContext:
        """Return the session's context, in float64."""
        tp = self.session.shard()
        tp.dtype = torch.float64
        return tp

    def make(self) -> nn.Module:
        """Return the model with this rank's units."""
        return LanguageModel(self.shard(), tied=self.case.tied).double()

    def batch(self) -> tuple[Tensor, Tensor]:
        return tokens_of(self.iteration)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return self.model(tokens, targets)

    def step(self) -> None:
        self.iteration += 1
        self.optimizer.zero_grad()
        loss = self.loss(*self.batch())
        loss.backward()
        self.session.step(gradient_clip=1.0, loss=loss)
        self.session.boundary(self.iteration, loss=loss)
        self.losses.append(float(loss.detach()))

    @property
    def acts(self) -> bool:
        """Whether the plan in force is what the case waits for."""
        plan = self.session.balancer.plan
        if self.case.policy["strategy"] == "None":
            return self.iteration == MOST
        return bool(plan.reductions) if self.case.reduces else plan.ownership.moved_at is not None

    def state(self) -> dict[str, torch.Tensor]:
        """Return on rank 0 all parameters and moments in canonical order."""
        found = {}
        tp, parameters = self.session.tp, dict(self.model.named_parameters())
        stream.gather(parameters, self.optimizer, tp, lambda name, whole: found.update({name: whole.clone()}))
        return found


def columns_of(run: Run, name: str = "lm_head") -> dict[str, int]:
    """Return how many columns of a linear this rank prunes and lets others compute; without a name the logits'."""
    partition = run.model.get_submodule(name).partition
    parts = {"pruned": partition.pruned, "migrated": partition.migrated} if partition is not None else {}
    return {name: len(part) for name, part in parts.items() if part is not None}


def check(gang: Gang, case: Language, folder: Path, kind: type[Run] = Run) -> dict:
    """Train until the plan acts and some iterations more; then read the checkpoint on other ranks."""
    session = gang.session(case, folder, 1)
    run = kind(session, case)
    while not run.acts:
        assert run.iteration < MOST, session.balancer.plan
        run.step()
    facts = {"acts": run.iteration, "columns": columns_of(run), "still": still_columns(run)}
    facts["rows"] = run.model.lm_head.weight.shape[0]
    facts["counts"] = {family: session.tp.unit_plan.counts(family) for family in FAMILIES}
    facts["reason"] = session.balancer.plan.reason
    linears = [name for name, module in run.model.named_modules() if isinstance(module, ParallelLinear)]
    facts["linears"] = {name: columns_of(run, name) for name in linears}
    last = run.iteration + case.after
    while run.iteration < last:
        run.step()
    facts["losses"] = run.losses
    facts["vocabulary"] = [float(each) for each in session.balancer.history.last(1)[0].vocabulary]
    session.save()
    wanted = run.state()
    session.finish()
    if case.policy["strategy"] == "AUTO":
        facts["same"] = reread(gang, case, folder, wanted, kind)
    return facts


def still_columns(run: Run) -> bool | None:
    """Make a step (all ranks); return whether the pruned columns of the logits' weight stayed as they were.

    None on a rank that prunes none.
    """
    partition, weight = run.model.lm_head.partition, run.model.lm_head.weight
    pruned = partition.pruned if partition is not None else None
    before = weight.detach().clone()
    run.step()
    return None if pruned is None else torch.equal(before[:, pruned.ids], weight.detach()[:, pruned.ids])


def reread(gang: Gang, case: Language, folder: Path, wanted: dict, kind: type[Run]) -> dict[str, bool]:
    """Return by number of ranks whether they restore the same bits, one after the other."""
    found = {}
    for attempt, ranks in enumerate((gang.ranks - 1, gang.ranks), 2):
        if gang.rank < ranks:
            session = gang.session(Language(tied=case.tied), folder, attempt, ranks)
            run = kind(session, case)
            got = run.state()
            found[str(ranks)] = got.keys() == wanted.keys() and all(torch.equal(got[k], wanted[k]) for k in wanted)
            run.step()
            wanted = run.state()  # the next number of ranks continues from here
            session.finish()
        else:
            gang.skip()
    return found


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    gang = Gang(rank, ranks, folder)
    results = {name: check(gang, case, folder / f"case{n}") for n, (name, case) in enumerate(CASES.items())}
    (folder / f"rank{rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
