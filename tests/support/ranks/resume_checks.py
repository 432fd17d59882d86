"""One rank of the gang behind test_resume_gang.py: each case trains to its end, and again from a checkpoint on the way.

Called as: resume_checks.py RANK RANKS FOLDER. Result: by case the iterations, and what both runs saw in each of them.
"""

import dataclasses
import json
import random
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from heterotp import Session
from heterotp_api.job import Device
from heterotp_api.names import Env
from heterotp_trainer.balancing.decide import decide
from heterotp_trainer.checkpoint import files, stream
from heterotp_trainer.launch.environment import read_environment
from heterotp_trainer.rebalancing import balancer
from heterotp_trainer.tensor_parallel.attention import ParallelAttention
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from support.balancing_gang import write_control
from support.ports import free_port
from torch import Tensor, nn

WIDTH, UNITS, HEADS, BATCH, PER_EPOCH = 24, 48, 6, 8, 3
SOONEST, AFTER, MOST = 6, 5, 120  # iterations: before the checkpoint, after it, and at most before it
FAST, SLOW = 6e-6, 1.5e-6  # teraflops of emulated ranks


@dataclass(frozen=True)
class Case:
    """One training: its optimizer, its policy, and whether the last rank is four times slower than the others."""

    optimizer: str = "AdamW"
    policy: dict = field(default_factory=dict)  # of the control document
    straggler: bool = False
    reduces: bool = False  # the checkpoint waits for a plan that prunes or migrates
    within: int = 0  # iterations of an epoch before the checkpoint; 0: it is between two epochs


def zero(optimizer="AdamW", straggler=False, **fields):
    ratio = {} if straggler else {"fixedRatio": 0.5, "ranks": [1]}
    policy = {"strategy": "ZERO", "zero": {"grain": 1, "statisticsEvery": 2, **ratio, **fields}}
    return Case(optimizer, policy | (CALM if straggler else {}), straggler, reduces=True)


CALM = {"window": 2, "enter": 0.5, "exit": 0.3}
CASES = {
    "None, SGD": Case("SGD", {"strategy": "None"}),
    "None, AdamW": Case("AdamW", {"strategy": "None"}),
    "within an epoch, own generator": Case("SGD", {"strategy": "None"}, within=1),
    "within an epoch, torch's generator": Case("AdamW", {"strategy": "None"}, within=2),
    "ZERO Rd": zero(selection="Rd", maskPrunedUpdate=True),
    "ZERO Pri, Same": zero("SGD", selection="Pri", imputation="Same"),
    "ZERO PriDiffR, Average": zero(selection="PriDiffR", imputation="Average"),
    "ZERO PriDiffE": zero("SGD", straggler=True, selection="PriDiffE", pairedUnits=True),
    "MIG": Case("AdamW", {"strategy": "MIG", "mig": {"grain": 1, "fixedRatio": 0.5, "ranks": [2]}}, reduces=True),
    "SEMI": Case("SGD", {"strategy": "SEMI", "semi": {"zero": {"grain": 1}, "mig": {"grain": 1}}} | CALM, True, True),
    "AUTO": Case("AdamW", {"strategy": "AUTO", "reshard": {"grain": 1, "evict": [1]}}),
}


class Model(nn.Module):
    """[B, T, D] -> [B, D], with running statistics."""

    def __init__(self, tp: TPContext) -> None:
        super().__init__()
        self.attention = ParallelAttention(tp, WIDTH, HEADS, name="attention", seed=0)
        self.mlp, self.norm = ParallelMLP(tp, WIDTH, UNITS, name="mlp", seed=0), nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return self.norm((x + self.mlp(x)).mean(1))


class Run:
    """One training of a case in a session of its own."""

    def __init__(self, session: Session, case: Case, seed: int) -> None:
        """seed: of what a resumed run continues; it must not matter there."""
        self.session, self.case = session, case
        tp = session.shard()
        torch.manual_seed(0)  # replicated parameters are equal on all ranks
        self.model = Model(tp)
        parameters, rate = self.model.parameters(), 0.01
        sgd = case.optimizer == "SGD"
        self.optimizer = torch.optim.SGD(parameters, rate, 0.9) if sgd else torch.optim.AdamW(parameters, rate)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.05, total_steps=MOST + AFTER)
        self.noise = torch.Generator().manual_seed(seed)
        data = torch.Generator().manual_seed(5)
        images, answers = (torch.randn(BATCH * PER_EPOCH, *shape, generator=data) for shape in ((4, WIDTH), (WIDTH,)))
        pairs = torch.utils.data.TensorDataset(images, answers)
        # without a generator of its own it draws from torch's
        shuffle = {"generator": torch.Generator().manual_seed(seed)} if sgd else {}
        self.loader = torch.utils.data.DataLoader(pairs, BATCH, shuffle=True, **shuffle)
        session.watch(self.model, self.optimizer)
        session.keep("schedule", self.schedule)
        session.keep("noise", self.noise)
        if sgd or case.within:
            session.keep("data", self.loader)
        torch.manual_seed(seed)
        random.seed(seed + session.environment.rank)  # unlike on each rank
        np.random.seed(seed + session.environment.rank)

    def train(self, seen: dict, end) -> None:
        """Train until end(iteration); seen: receives what each iteration saw."""
        iteration = self.session.restore()
        seen["from"] = iteration
        while True:
            for images, answers in self.loader:
                iteration += 1
                seen[iteration] = self._step(images, answers, iteration)
                if end(iteration):
                    return

    def _step(self, images: Tensor, answers: Tensor, iteration: int) -> list:
        self.optimizer.zero_grad()
        images = images + 0.1 * torch.randn(images.shape) + 0.1 * torch.randn(images.shape, generator=self.noise)
        loss = F.mse_loss(self.model(images), answers)
        loss.backward()
        self.session.step(gradient_clip=1.0, loss=loss)
        self.schedule.step()
        self.session.boundary(iteration, loss=loss, epoch=iteration // PER_EPOCH)
        drawn = [random.random(), float(np.random.rand())]
        sums = [float(each.detach().double().abs().sum()) for each in self.model.parameters()]
        sums += [float(each.double().sum()) for each in self.model.buffers()]
        return [float(loss.detach()), *sums, self.optimizer.param_groups[0]["lr"], *drawn]


def decisions(allowed: bool) -> None:
    """Allow decisions or keep the plan: those that follow from measured times may differ from run to run."""
    balancer.decide = decide if allowed else lambda history, policy, plan, costs, answers: plan


class Gang:
    """Sessions of one process, one after the other, on ports that rank 0 finds."""

    def __init__(self, rank: int, ranks: int, folder: Path) -> None:
        self.rank, self.ranks, self.folder, self._count = rank, ranks, folder, 0
        self._ports = dist.FileStore(str(folder / "ports"), ranks)

    def session(self, case: Case, folder: Path, attempt: int, ranks: int | None = None) -> Session:
        self._count += 1
        if self.rank == 0:
            write_control(folder, 1, **case.policy)
            self._ports.set(str(self._count), str(free_port()))
        port = self._ports.get(str(self._count)).decode()
        names = {"RANK": self.rank, "WORLD_SIZE": ranks or self.ranks, "MASTER_PORT": port, Env.ATTEMPT: attempt}
        names |= {Env.CONTROL_DIR: folder, Env.CHECKPOINT_DIR: folder / "checkpoints"}
        environment = read_environment({name: str(value) for name, value in names.items()})
        teraflops = SLOW if case.straggler and self.rank == self.ranks - 1 else FAST
        if case.straggler:
            device = Device.model_validate({"type": "emulated", "teraflops": teraflops, "fixedSeconds": 0.002})
            environment = dataclasses.replace(environment, device=device)
        return Session(environment, telemetry=False)

    def skip(self) -> None:
        """Take no part in the next session."""
        self._count += 1

    def check(self, case: Case, folder: Path) -> dict:
        """Return what an unbroken run saw after its checkpoint, and what one saw that continued from it."""
        whole, again = {}, {}
        session = self.session(case, folder, 1)
        run, last = Run(session, case, seed=1), []

        def end(iteration: int) -> bool:
            ready = iteration >= SOONEST and iteration % PER_EPOCH == case.within
            if not last and ready and (bool(session.balancer.plan.reductions) or not case.reduces):
                session.save()
                decisions(not case.straggler)
                last.append(iteration + AFTER)
                if self.rank == 0:
                    shutil.copytree(folder / "checkpoints", folder / "again" / "checkpoints")
            assert last or iteration < MOST, session.balancer.plan
            return bool(last) and iteration == last[0]

        run.train(whole, end)
        plan = session.balancer.plan
        session.finish()
        session = self.session(case, folder / "again", 2)
        Run(session, case, seed=1000).train(again, lambda iteration: iteration == last[0])
        facts = {
            "columns": [bool(each.reductions) for each in (plan, session.balancer.plan)],
        }
        session.finish()
        decisions(True)
        if case.policy.get("zero", {}).get("imputation") == "Same":
            facts |= {"fewer": self.fewer(case, folder / "again")}
        after = range(last[0] - AFTER + 1, last[0] + 1)
        return facts | {
            "from": again["from"],
            "saved": after[0] - 1,
            "whole": [whole[i] for i in after],
            "again": [again[i] for i in after],
        }

    def fewer(self, case: Case, folder: Path) -> dict[str, str]:
        """Return on rank 0 by name what one rank less reads of the columns' tensors in a checkpoint of all ranks.

        "equal": the same; "mean": that of all ranks' own; "absent": nothing.
        """
        if self.rank == self.ranks - 1:
            self.skip()
            return {}
        session = self.session(case, folder, 3, self.ranks - 1)
        Run(session, case, seed=7)
        path, manifest = files.newest(folder / "checkpoints")[0]
        held = {name: each for name, each in files.read_tensors(path, manifest) if name.startswith("columns/")}
        session.restore()
        found = {}
        stream.gather_slots(session.balancer.assigner.slots(), session.tp, found.__setitem__)
        session.finish()
        return {name: _compared(held[name], found.get(name)) for name in held} if self.rank == 0 else {}


def _compared(held: Tensor, found: Tensor | None) -> str:
    if found is None:
        return "absent"
    if found.shape == held.shape and torch.equal(found, held):
        return "equal"
    return "mean" if all(torch.equal(each, held.mean(0)) for each in found) else "another"


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    gang = Gang(rank, ranks, folder)
    results = {name: gang.check(case, folder / f"case{number}") for number, (name, case) in enumerate(CASES.items())}
    (folder / f"rank{rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
