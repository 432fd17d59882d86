"""Trains a few iterations and writes, before and after `session.finish`, how many threads of gloo there are."""

import json
import os
from pathlib import Path

import torch
from heterotp import ParallelMLP, run_rank

ITERATIONS = 3


def threads_of_gloo():
    """Return the number of this process's threads that work for gloo."""
    return sum("gloo" in _name(thread) for thread in Path("/proc/self/task").iterdir())


def _name(thread):
    """Return the name of a thread; nothing for one that ends while it is looked at."""
    try:
        return (thread / "comm").read_text()
    except OSError:
        return ""


def main(session):
    model = ParallelMLP(session.shard(), 8, 16, name="mlp", seed=0)
    session.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for iteration in range(1, ITERATIONS + 1):
        loss = model(torch.ones(4, 3, 8)).square().mean()
        loss.backward()
        session.step()
        session.boundary(iteration, loss=loss)
    working = threads_of_gloo()
    session.finish()
    found = {"working": working, "left": threads_of_gloo()}
    Path(os.environ["HETEROTP_WORKDIR"], f"threads-{session.environment.rank}.json").write_text(json.dumps(found))


run_rank(main)
