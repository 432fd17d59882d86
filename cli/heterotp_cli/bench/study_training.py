"""One cell of the accuracy study in one process: resumed at any epoch, equal to a gang of real ranks."""

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from heterotp_api.policy import BalancingSettings
from heterotp_trainer.data import Dataset, batches, load_dataset
from heterotp_trainer.data.shapes32 import load_shapes32
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.plans.work_reduction import WorkReduction
from heterotp_trainer.rebalancing.column_selection import draw_period
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from heterotp_cli.bench.study_cells import StudyCell, StudySize
from heterotp_cli.bench.training import Course, Setting, evaluate, update

STATE = "state"  # in the file's metadata: what is no tensor
Curve = list[dict[str, float]]  # loss and accuracy on held-out images after each epoch


def data_of(size: StudySize) -> Dataset:
    """Return the images of a size."""
    if size.data == "shapes-32":
        return load_shapes32(size.path, size.train, size.test)
    return load_dataset(size.data, size.path, 0)


def setting_of(cell: StudyCell, size: StudySize) -> Setting:
    """Return what a cell trains."""
    block = BalancingSettings.model_validate(cell.policy).pruning.dump()
    return Setting(size.shape, size.training, cell.seed, block, cell.shares, size.ranks)


def train_cell(cell: StudyCell, size: StudySize, part: Path) -> dict[str, Any]:
    """Train a cell to its end; part: the file that holds its state after each epoch, until it has a result."""
    torch.set_num_threads(1)
    course = Course(setting_of(cell, size), data_of(size))
    curve, seconds = _resume(course, part, cell.content(size))
    while not course.ended:
        started = time.monotonic()
        course.run_epoch()
        curve.append(evaluate(course.gang.model, course.data))
        seconds += time.monotonic() - started
        _keep(course, part, {"content": cell.content(size), "curve": curve, "seconds": seconds})
    part.unlink(missing_ok=True)
    return {**curve[-1], "curve": curve, "seconds": seconds}


def _resume(course: Course, part: Path, content: str) -> tuple[Curve, float]:
    """Continue from the state that is kept, if it is of this cell; return the epochs so far and their seconds."""
    try:
        with safe_open(part, "pt") as file:
            state = json.loads((file.metadata() or {})[STATE])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError, KeyError, ValueError):
        return [], 0.0
    if state["content"] != content:
        return [], 0.0
    course.resume(state["epoch"], state["counts"], tensors)
    return list(state["curve"]), float(state["seconds"])


def _keep(course: Course, part: Path, state: dict[str, Any]) -> None:
    """Write the state of a training into a file that is whole or absent."""
    part.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**state, "epoch": course.epoch, "counts": course.counts})
    tensors = {name: tensor.detach().contiguous() for name, tensor in course.tensors().items()}
    new = part.with_suffix(f".{os.getpid()}")
    save_file(tensors, new, {STATE: text})
    os.replace(new, part)


# -- what a gang of real ranks did, again ---------------------------------------------------------------------------


def replayed(cell: StudyCell, size: StudySize, plans: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Train in one process with the decisions of a gang; plans: as rank_study.py records them."""
    torch.set_num_threads(1)
    course = Course(_of_gang(cell, size), data_of(size))
    replay, losses = Replay(course, plans, BalancingSettings.model_validate(cell.policy)), []
    for epoch in range(size.epochs):
        every = batches(course.data, size.batch_size, cell.seed, epoch)
        for iteration, (images, labels) in enumerate(every, start=epoch * course.per_epoch):
            course.set_learning_rate(iteration)
            losses.append(update(course.gang.model, course.optimizer, images, labels))
            replay.boundary(iteration + 1)
    return {**evaluate(course.gang.model, course.data), "losses": losses}


def _of_gang(cell: StudyCell, size: StudySize) -> Setting:
    block = BalancingSettings.model_validate(cell.policy).pruning.dump()
    return Setting(size.shape, size.training, cell.seed, block, (((),) * size.ranks,) * size.epochs, size.ranks)


class Replay:
    """Does at each boundary what the ranks of a gang did there with columns."""

    def __init__(self, course: Course, plans: Sequence[dict[str, Any]], policy: BalancingSettings) -> None:
        self._course, self._policy, self._followed, self._epoch = course, policy, False, 0
        self._at = {each["iteration"]: each for each in plans}
        self._plan, self._costs = WorkPlan(), course.gang.costs
        for assigner in course.gang.assigner:  # until the policy is in force
            assigner.follow(BalancingSettings.model_validate({"strategy": "None"}))

    def boundary(self, iteration: int) -> None:
        """End an iteration."""
        found, assigners = self._at.get(iteration), self._course.gang.assigner
        for assigner in assigners:
            assigner.count_step()
        if found is not None and found["followed"] and not self._followed:
            self._followed = True
            self._each(lambda assigner: assigner.follow(self._policy))
        epoch = iteration // self._course.per_epoch
        every = self._policy.pruning.statistics_every
        due = iteration % every == 0 if every else epoch != self._epoch
        self._epoch = epoch
        refreshed = due and any([assigner.refresh() for assigner in assigners])
        changed = found is not None and found["decision"] != self._plan.decision_id
        if found is not None:
            self._take(found)
        settings = self._policy.pruning if self._followed else BalancingSettings().pruning
        period = draw_period(settings, iteration, epoch)
        if changed or (refreshed and bool(self._plan.reductions)):
            self._each(lambda assigner: assigner.apply(self._plan, self._costs, self._policy, period))
        else:
            self._each(lambda assigner: assigner.redraw(period))

    def _take(self, found: dict[str, Any]) -> None:
        reductions = tuple(
            (rank, tuple(WorkReduction(pruned) for pruned in counts)) for rank, counts in found["pruned"]
        )
        self._plan = WorkPlan(found["decision"], reductions=reductions)
        costs = self._course.gang.costs
        self._costs = Costs(costs.classes, costs.curves, tuple(found["grains"]))

    def _each(self, act: Callable[[Any], Any]) -> None:
        for assigner in self._course.gang.assigner:
            act(assigner)
