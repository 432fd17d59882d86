"""The built-in trainer with one thing wrong on one rank, or telling more of itself: `sabotage.py WHAT`."""

import errno
import json
import os
import signal
import sys
from dataclasses import replace

import torch
from heterotp import run_rank
from heterotp_api.names import Env
from heterotp_trainer import session as sessions
from heterotp_trainer.boundary import control_channel, exchange
from heterotp_trainer.checkpoint import tensor_files
from heterotp_trainer.data import batches
from heterotp_trainer.devices import device as devices
from heterotp_trainer.plans.work_reduction import WorkReduction
from heterotp_trainer.rebalancing import balancer
from heterotp_trainer.rebalancing import column_assigner as assigner
from heterotp_trainer.resharding import memory, resharder, unit_mover
from heterotp_trainer.resharding import sharded_state as sharded_states
from heterotp_trainer.tensor_parallel import column_transport as transports
from heterotp_trainer.tensor_parallel import gradients, resized
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec
from heterotp_trainer.training import vision
from heterotp_trainer.training.builtin import main
from heterotp_trainer.training.loop import TrainingLoop
from support.unlike import another_processor

WHAT, RANK = sys.argv[1], int(os.environ[Env.RANK])
LAST = int(os.environ[Env.WORLD_SIZE]) - 1 == RANK
NUDGED_AT = 20
SILENT = "prints what holds, without telemetry"


def nudge_a_replica():
    step = TrainingLoop._step

    def nudged(self, inputs, targets, iteration):
        loss = step(self, inputs, targets, iteration)
        if iteration == NUDGED_AT:
            next(p for p in self.task.model.parameters() if shard_spec(p) is None).data.add_(1e-7)
        return loss

    TrainingLoop._step = nudged


def fill_the_disk(after):
    """Let no file of tensors be written after `after` checkpoints."""
    written = []

    def full(tensors, path, metadata, _save=tensor_files.save_file):
        written.append(path)
        if len(written) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _save(tensors, path, metadata)

    tensor_files.save_file = full


def report_gradients(session):
    """Print what averaging and clipping make of gradients that are known: rank + 1, and 1."""
    trainer = vision.Vision(session, session.environment.spec.training)
    session.watch(trainer.model, trainer.optimizer, iterations=0)
    parameters = list(trainer.model.parameters())
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, RANK + 1.0)
    gradients.average_replicas(parameters, session.tp)
    averaged = {float(p.grad.unique()) for p in parameters if shard_spec(p) is None}
    kept = {float(p.grad.unique()) for p in parameters if shard_spec(p) is not None and p.numel()}
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    gradients.scale_gradients(parameters, 1 / gradients.gradient_norm(parameters, session.tp))
    clipped = float(parameters[0].grad.flatten()[0])
    sizes = {"sharded": 0, "replicated": 0}
    for parameter in parameters:
        sizes["replicated" if shard_spec(parameter) is None else "sharded"] += parameter.numel()
    found = {"rank": RANK, "averaged": list(averaged), "kept": list(kept), "clipped": clipped, **sizes}
    print("FOUND " + json.dumps(found), flush=True)
    session.finish()


PLACES = {  # where a rank may die
    "forward": (resized, "multiply"),
    "backward": (resized.ColumnPartition, "impute"),
    "sum": (resized, "start_sum"),
    "broadcast": (transports.BroadcastReduceTransport, "_broadcast"),
    "return": (transports.ColumnTransport, "return_columns"),
    "send": (transports.ColumnTransport, "_post"),
    "receive": (transports.ColumnTransport, "_receive"),
    "optimizer": (balancer, "step_around"),
    "exchange": (exchange.BoundaryExchange, "post"),
    "calibration": (balancer, "calibrate_costs"),
    "columns": (assigner.ColumnAssigner, "apply"),
    "document": (control_channel.ControlChannel, "receive"),
    "reserve": (memory, "reserve"),
    "move a layer": (unit_mover.UnitMover, "_move_layer"),
    "send units": (unit_mover, "_packed"),
    "take units": (unit_mover, "_unpack"),
    "rebind": (sharded_states, "_rebind"),
    "after a move": (resharder, "_corrected"),
}
EARLY = ("calibration", "columns", "document")  # these happen in the first iterations and not again


def die_in(place):
    """Kill this rank the first time that it comes by there, in what happens every iteration not in the first few."""
    module, name = PLACES[place]
    original = getattr(module, name)
    begun = [place in EARLY]

    def boundary(self, iteration, *arguments, _boundary=sessions.Session.boundary, **options):
        begun[0] = begun[0] or iteration >= 8
        return _boundary(self, iteration, *arguments, **options)

    def dying(*arguments, **options):
        if begun[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    sessions.Session.boundary = boundary
    setattr(module, name, dying)


OTHERWISE = {  # what of a plan a rank may see otherwise
    "columns pruned": lambda plan: replace(plan, reductions=((0, (WorkReduction(16, 0),) * 4),)),
    "columns migrated": lambda plan: replace(plan, reductions=((0, (WorkReduction(0, 8),) * 4),)),
    "primitive": lambda plan: replace(plan, primitive="scatterGather"),
    "number": lambda plan: replace(plan, decision_id=plan.decision_id + 1),
}


def decide_otherwise(change):
    """From iteration 8 on return the plan of all ranks but for one thing."""
    decide, boundaries, other = balancer.decide, [], []

    def deciding(history, policy, plan, costs, answers):
        boundaries.append(plan)
        if len(boundaries) == 8:
            other.append(change(decide(history, policy, plan, costs, answers)))
        return other[0] if other else decide(history, policy, plan, costs, answers)

    balancer.decide = deciding


def print_what_holds():
    """Print what holds in the coming iteration, whenever that is something else."""
    printed = []

    def boundary(self, iteration, *arguments, _boundary=sessions.Session.boundary, **options):
        directive = _boundary(self, iteration, *arguments, **options)
        holds = {
            "generation": self.control.generation,
            "plan": self.balancer.plan.decision_id,
            "hash": self.balancer.plan.hash,
            "asked": [chi for chi, _ in self._injector.now.asked],
        }
        if printed != [holds]:
            printed[:] = [holds]
            chi = self.device.slowdown.chi if self.device.slowdown is not None else 1.0
            print("HOLDS " + json.dumps({"rank": RANK, "iteration": iteration + 1, "chi": chi, **holds}), flush=True)
        return directive

    sessions.Session.boundary = boundary


def sabotage():
    if WHAT.startswith("die in ") and LAST:
        die_in(WHAT.removeprefix("die in "))
    if WHAT == "other batch" and LAST:
        vision.batches = lambda data, size, seed, epoch, start: batches(data, size, seed + 1, epoch, start)
    if WHAT.startswith("replica") and LAST:
        nudge_a_replica()
    if WHAT == "replica on unlike processors":
        another_processor(RANK)
    if WHAT == "no bf16" and LAST:
        devices.Device.supports = lambda self, precision: precision == "fp32"
    if WHAT == "disk full" and RANK == 0:
        fill_the_disk(after=1)
    if WHAT == "earlier attempt" and LAST:
        os.environ[Env.ATTEMPT] = "1"
    if WHAT == "no memory" and LAST:
        memory.reserve = lambda nbytes, device: None
    if WHAT == "slow" and LAST:
        os.environ[Env.DEVICE] = json.dumps({"type": "emulated", "teraflops": 5e-6})


def watch_decisions():
    if WHAT.startswith("decides otherwise: ") and RANK == 1:
        decide_otherwise(OTHERWISE[WHAT.removeprefix("decides otherwise: ")])
    if WHAT in ("prints what holds", SILENT):
        print_what_holds()


sabotage()
watch_decisions()
run_rank(report_gradients if WHAT == "gradients" else main, telemetry=WHAT != SILENT)
