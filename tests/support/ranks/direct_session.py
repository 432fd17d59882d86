"""Trains a few iterations by a Session without run_rank; `direct_session.py END`: what the script does then."""

import sys

import torch
from heterotp import ParallelMLP, Session

END, ITERATIONS = sys.argv[1], 5
session = Session.from_environment()
model = ParallelMLP(session.shard(), 8, 16, name="mlp", seed=0)
session.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
for iteration in range(session.restore() + 1, ITERATIONS + 1):
    loss = model(torch.ones(4, 3, 8)).square().mean()
    loss.backward()
    session.step()
    session.boundary(iteration, loss=loss)
if END == "an error":
    int("three")
if END == "finish":
    session.finish()
