"""The built-in trainer with one thing wrong on one rank: `sabotage.py WHAT`."""

import json
import os
import signal
import sys

import torch
from heterotp_api.names import Env
from heterotp_trainer import balancer, devices, exchange, lineages, optimization, run_rank, train
from heterotp_trainer import session as sessions
from heterotp_trainer.checkpoint import files
from heterotp_trainer.tensor_parallel import couriers, resized
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec

WHAT, RANK = sys.argv[1], int(os.environ[Env.RANK])
LAST = int(os.environ[Env.WORLD_SIZE]) - 1 == RANK
NUDGED_AT = 20


def nudge_a_replica():
    step = train.Trainer._step

    def nudged(self, images, labels, iteration):
        loss = step(self, images, labels, iteration)
        if iteration == NUDGED_AT:
            next(p for p in self.model.parameters() if shard_spec(p) is None).data.add_(1e-7)
        return loss

    train.Trainer._step = nudged


def another_processor():
    devices.Device.arithmetic = f"a processor of its own {RANK}"


def fill_the_disk(after):
    """Send what is written after `after` checkpoints to a device that is always full."""
    opened = []
    original = files.Writer.__init__

    def full(self, *arguments):
        original(self, *arguments)
        opened.append(self)
        if len(opened) > after:
            self._file.close()
            self._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115

    files.Writer.__init__ = full


def report_gradients(session):
    """Print what averaging and clipping make of gradients that are known: rank + 1, and 1."""
    trainer = train.Trainer(session, session.environment.spec.training)
    session.watch(trainer.model, trainer.optimizer)
    parameters = list(trainer.model.parameters())
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, RANK + 1.0)
    optimization.average_replicas(parameters, session.tp)
    averaged = {float(p.grad.unique()) for p in parameters if shard_spec(p) is None}
    kept = {float(p.grad.unique()) for p in parameters if shard_spec(p) is not None and p.numel()}
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimization.clip_gradients(parameters, 1.0, session.tp)
    clipped = float(parameters[0].grad.flatten()[0])
    sizes = {"sharded": 0, "replicated": 0}
    for parameter in parameters:
        sizes["replicated" if shard_spec(parameter) is None else "sharded"] += parameter.numel()
    found = {"rank": RANK, "averaged": list(averaged), "kept": list(kept), "clipped": clipped, **sizes}
    print("FOUND " + json.dumps(found), flush=True)
    session.finish()


PLACES = {  # where a rank may die
    "forward": (resized, "multiply"),
    "backward": (resized.Lineage, "impute"),
    "sum": (resized, "start_sum"),
    "broadcast": (couriers.BroadcastReduce, "_broadcast"),
    "return": (couriers.Courier, "return_columns"),
    "optimizer": (balancer, "step_around"),
    "exchange": (exchange.BoundaryExchange, "post"),
    "pretest": (balancer, "pretest"),
    "columns": (lineages.Lineages, "apply"),
    "document": (sessions.Session, "_spread"),
}
EARLY = ("pretest", "columns", "document")  # these happen in the first iterations and not again


def die_in(place):
    """Kill this rank the first time that it comes by there, in what happens every iteration not in the first few."""
    owner, name = PLACES[place]
    original = getattr(owner, name)
    begun = [place in EARLY]

    def boundary(self, iteration, *arguments, _boundary=sessions.Session.boundary, **options):
        begun[0] = begun[0] or iteration >= 8
        return _boundary(self, iteration, *arguments, **options)

    def dying(*arguments, **options):
        if begun[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    sessions.Session.boundary = boundary
    setattr(owner, name, dying)


def sabotage():
    if WHAT.startswith("die in ") and LAST:
        die_in(WHAT.removeprefix("die in "))
    if WHAT == "other batch" and LAST:
        train.batch_hash = lambda images, labels: "another"
    if WHAT.startswith("replica") and LAST:
        nudge_a_replica()
    if WHAT == "replica on unlike processors":
        another_processor()
    if WHAT == "no bf16" and LAST:
        devices.Device.supports = lambda self, precision: precision == "fp32"
    if WHAT == "disk full" and RANK == 0:
        fill_the_disk(after=1)
    if WHAT == "earlier attempt" and LAST:
        os.environ[Env.ATTEMPT] = "1"
    if WHAT == "slow" and LAST:
        os.environ[Env.DEVICE] = json.dumps({"type": "emulated", "teraflops": 0.0025})


sabotage()
run_rank(report_gradients if WHAT == "gradients" else train.main)
