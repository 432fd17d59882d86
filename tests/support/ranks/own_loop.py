"""A model and a loop as a user writes them, with one ordinary mistake: `own_loop.py MISTAKE [ITERATIONS] [DEVICES]`.

`none` has none. DEVICES: as those of the machine, or `unlike` (they round otherwise), or `late`, as accelerators are.
A mistake is a part of the script that is written in another way. docs/convert-your-model.md lists them by these names.
"""

import ctypes
import os
import sys
import time

import torch
import torch.nn.functional as F
from heterotp import ColumnParallelLinear, ParallelAttention, ParallelMLP, TPContext, ffn, run_rank
from heterotp_trainer.plans.unit_plan import UnitPlan
from support.unlike import another_processor, behind_its_host
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MISTAKE, RANK = sys.argv[1], int(os.environ["RANK"])
WIDTH, HEADS, UNITS, ITERATIONS = 16, 4, 32, int(sys.argv[2]) if len(sys.argv) > 2 else 6

if "unlike" in sys.argv[3:]:
    another_processor(RANK)
if "late" in sys.argv[3:]:
    behind_its_host()


class Model(nn.Module):
    """[B, 4, 16] -> [B, 3]."""

    def __init__(self, tp):
        super().__init__()
        self.calls = 0
        self.embed, self.norm, self.head = nn.Linear(16, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 3)
        if MISTAKE == "another model on a rank":
            self.head = nn.Linear(WIDTH, 3 + RANK)
        heads = 5 if MISTAKE == "heads that do not divide the width" else HEADS
        self.attention = ParallelAttention(tp, WIDTH, heads, name="attention", seed=1)
        self.mlp = ParallelMLP(tp, WIDTH, UNITS, name="attention" if MISTAKE == "equal names" else "mlp", seed=1)
        if MISTAKE == "equal names":
            self.more = ParallelMLP(tp, WIDTH, UNITS, name="attention", seed=1)
        if MISTAKE == "a context of its own":
            own = TPContext(tp.group, tp.rank, tp.ranks, tp.device, tp.clock, UnitPlan.empty(tp.ranks))
            self.more = ParallelMLP(own, WIDTH, UNITS, name="mlp", seed=1)
        if MISTAKE == "two sizes":
            self.more = ParallelMLP(tp, WIDTH, 2 * UNITS, name="more", seed=1)
        if MISTAKE == "a linear of another size":
            self.more = ColumnParallelLinear.of(nn.Linear(WIDTH, 48), tp, ffn(UNITS)["fc1"], name="more")
        if MISTAKE == "a shared parameter between the linears":
            self.scale = nn.Parameter(torch.ones(()))
        if MISTAKE == "dropout":
            self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        x = self.embed(x)
        x = x + self.attention(x)
        if MISTAKE == "dropout by unlike seeds":
            x = F.dropout(x, 0.1, self.training)
        if MISTAKE == "an error of its own":
            int("three")
        if MISTAKE == "a shared parameter between the linears":
            return self.head(self.norm((x + self.mlp.fc2(self.scale * F.gelu(self.mlp.fc1(x)))).mean(1)))
        if MISTAKE == "dropout":
            return self.head(self.norm((x + self.mlp.fc2(self.dropout(F.gelu(self.mlp.fc1(x))))).mean(1)))
        if MISTAKE == "functional dropout that begins later":
            self.calls += 1
            x, p = F.dropout(x, 0.1, self.training), 0.1 if self.calls > 50 else 0.0
            return self.head(self.norm((x + self.mlp.fc2(F.dropout(self.mlp.fc1(x), p, self.training))).mean(1)))
        if MISTAKE == "functional dropout":
            return self.head(self.norm((x + self.mlp.fc2(F.dropout(self.mlp.fc1(x), 0.1, self.training))).mean(1)))
        x = x + self.mlp(x)
        if MISTAKE == "a weight outside of its layer":
            x = x / self.mlp.fc1.weight.norm()
        return self.head(self.norm(x.mean(1)))


def seed():
    if MISTAKE == "a seed per rank":
        return torch.manual_seed(RANK)
    if MISTAKE == "no seed":
        return torch.seed()
    return torch.manual_seed(0)


def samples():
    draw = torch.Generator().manual_seed(RANK if MISTAKE == "samples per rank" else 3)
    answers = torch.randint(
        3, (96,), generator=torch.Generator().manual_seed(RANK if MISTAKE == "labels per rank" else 4)
    )
    return TensorDataset(torch.randn(96, 4, 16, generator=draw), answers)


def make_optimizer(model):
    if MISTAKE == "a parameter frozen on one rank":
        model.mlp.fc1.weight.requires_grad_(RANK != 1)
    parameters = model.parameters()
    if MISTAKE == "a parameter outside the model":
        parameters = [*parameters, nn.Parameter(torch.zeros(3, 2))]
    if MISTAKE == "Adafactor":
        return torch.optim.Adafactor(parameters, lr=0.05)
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def loss_of(model, images, labels, iteration):
    loss = F.cross_entropy(model(images), labels)
    if MISTAKE == "a penalty over what is cut":
        loss = loss + 0.01 * sum(parameter.norm() for parameter in model.parameters())
    if MISTAKE == "a loss that is not finite" and iteration == 3:
        loss = loss * float("nan")
    return loss


def update(session, model, optimizer, iteration):
    if MISTAKE == "a rank hangs after backward" and RANK == 1 and iteration == 3:
        time.sleep(3600)
    if MISTAKE == "torch's clipping":
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if MISTAKE == "own optimizer step":
        optimizer.step()
    elif MISTAKE != "no step":
        session.step()


def resume(session, model, optimizer):
    session.watch(model, optimizer)
    if MISTAKE == "a second watch":
        session.watch(model, optimizer)
    if MISTAKE == "a scheduler that is not kept":
        torch.optim.lr_scheduler.StepLR(optimizer, 2)
    iteration = 0 if MISTAKE == "no restore" else session.restore()
    if MISTAKE == "keep after restore":
        session.keep("order", torch.Generator())
    return iteration


def hold_interpreter():
    """Wait for ever in C with Python's lock held, whatever signals come: a mutex that this thread holds itself."""
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def before(iteration):
    if MISTAKE == "a rank hangs" and RANK == 1 and iteration == 3:
        time.sleep(3600)
    if MISTAKE == "a rank hangs with the interpreter" and RANK == 1 and iteration == 3:
        hold_interpreter()
    if MISTAKE == "all ranks hang" and iteration == 3:
        time.sleep(3600)
    if MISTAKE == "a rank hangs at the start" and RANK == 1:
        time.sleep(3600)


def after(iteration):
    if MISTAKE == "exit on one rank" and RANK == 1 and iteration == 3:
        sys.exit(0)


def main(session):
    seed()
    tp = session.tp if MISTAKE == "no shard" else session.shard()
    model = Model(tp)
    if MISTAKE == "dropout by unlike seeds":
        torch.manual_seed(RANK)
    optimizer = make_optimizer(model)
    iteration = resume(session, model, optimizer) if MISTAKE != "no watch" else 0
    loader = DataLoader(samples(), batch_size=32, shuffle=True)
    while iteration < ITERATIONS:
        for images, labels in loader:
            before(iteration)
            optimizer.zero_grad()
            loss = loss_of(model, images, labels, iteration)
            loss.backward()
            update(session, model, optimizer, iteration)
            iteration += 1
            after(iteration)
            if MISTAKE != "no boundary":
                session.boundary(iteration - (MISTAKE == "iterations from 0"), loss=loss, samples=len(labels))
            if iteration == ITERATIONS:
                break
    if RANK == 0:
        print(f"LOSS {float(loss):.9f}", flush=True)
    if MISTAKE != "no finish":
        session.finish()


run_rank(main)
