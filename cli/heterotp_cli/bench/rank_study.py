"""One rank of a cell that a real gang trains, with decisions in the loop; rank 0 writes the result."""

import json
import os
from typing import Any

import torch
from heterotp import Session, run_rank
from heterotp_trainer.data import batches
from heterotp_trainer.model.vit import VisionTransformer
from heterotp_trainer.rebalancing.balancer import Balancer
from heterotp_trainer.training.schedules import learning_rate, set_learning_rate

from heterotp_cli.bench.study_gang import CELL, RESULT, size_from
from heterotp_cli.bench.study_training import data_of
from heterotp_cli.bench.training import evaluate, loss_of, optimizer_of
from heterotp_cli.workdir import write_json


class Record:
    """What was decided at which boundary, the losses and the epochs; part of every checkpoint."""

    def __init__(self) -> None:
        self.plans: list[dict[str, Any]] = []
        self.losses: list[float] = []
        self.curve: list[dict[str, float]] = []

    def state_dict(self) -> dict[str, Any]:
        """Return all of it."""
        return {"text": json.dumps([self.plans, self.losses, self.curve])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from it."""
        self.plans, self.losses, self.curve = json.loads(state["text"])

    def take(self, iteration: int, balancer: Balancer, strategy: str) -> None:
        """Add the plan in force from the next iteration on, where it is another one."""
        plan = balancer.plan
        found = {
            "decision": plan.decision_id,
            "followed": balancer.policy.strategy == strategy,
            "pruned": [[rank, [taken.pruned for taken in classes]] for rank, classes in plan.reductions],
            "migrated": [[rank, [taken.migrated for taken in classes]] for rank, classes in plan.reductions],
            "grains": list(balancer.costs.grains),
            "units": [list(balancer.tp.unit_plan.counts(family)) for family in ("heads", "ffn")],
        }
        if not self.plans or {**self.plans[-1], "iteration": 0} != {**found, "iteration": 0}:
            self.plans.append({"iteration": iteration, **found})


def main(session: Session) -> None:
    """Train the cell."""
    cell, size = size_from(json.loads(os.environ[CELL]))
    torch.set_num_threads(1)
    data, shape, training = data_of(size), size.shape, size.training
    tp = session.shard()
    side, channels, classes = data.image_size, data.channels, data.classes
    model = VisionTransformer(tp, shape, image_size=side, channels=channels, classes=classes, seed=cell.seed)
    optimizer, record = optimizer_of(model, training), Record()
    per_epoch = len(data.train_labels) // size.batch_size
    total = size.epochs * per_epoch
    session.watch(model, optimizer, iterations=total)
    session.keep("record", record)
    iteration = session.restore()
    while iteration < total:
        epoch, start = divmod(iteration, per_epoch)
        for images, labels in batches(data, size.batch_size, cell.seed, epoch, start):
            set_learning_rate(optimizer, learning_rate(training, iteration, total))
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(model, *session.batch(images, labels))
            session.step()
            iteration += 1
            record.losses.append(float(loss))
            stop = session.boundary(iteration, loss=loss, samples=len(labels), epoch=iteration // per_epoch).stop
            record.take(iteration, session.balancer, cell.policy["strategy"])
            if stop and iteration < total:
                return session.finish(state="stopped")
            if iteration % per_epoch == 0:
                found = evaluate(model, data)
                session.evaluated(found["loss"], found["accuracy"], epoch=iteration // per_epoch)
                record.curve.append(found)
    if session.environment.rank == 0 and session.environment.workdir is not None:
        result = {"plans": record.plans, "losses": record.losses, "curve": record.curve}
        write_json(session.environment.workdir / RESULT, result)
    return session.finish()


if __name__ == "__main__":
    run_rank(main)
