"""What all built-in trainers share: the training loop, evaluations between iterations, the best model, the early end.

A Task is what they differ in: model, batches, loss, and what an evaluation measures.
"""

from collections.abc import Iterator
from typing import Protocol

import torch
from heterotp_api.training import Training
from torch import Tensor, nn

from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.session import Session
from heterotp_trainer.training.evaluations import Evaluation, Evaluations
from heterotp_trainer.training.schedules import learning_rate, set_learning_rate


class Task(Protocol):
    """One model and its data; per_epoch: batches of an epoch."""

    per_epoch: int

    @property
    def model(self) -> nn.Module:
        """What is trained."""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """What updates it."""

    def batches(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield an epoch's batches (inputs, targets) from batch `start` on, on the host, the same on all ranks."""

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a micro-batch."""

    def evaluate(self, iteration: int) -> Evaluation:
        """Measure the model on held-out data after an iteration (all ranks)."""


class TrainingLoop:
    """Trains a task to the end that the manifest asks for."""

    def __init__(self, session: Session, training: Training, task: Task) -> None:
        self.session, self.training, self.task = session, training, task
        self.total = training.iterations or (training.epochs or 1) * task.per_epoch
        self.evaluations = Evaluations(training.patience)

    def run(self) -> bool:
        """Train until the end or a stop; return whether the end was reached."""
        iteration = self._begin()
        while iteration < self.total and not self.evaluations.ended:
            epoch, start = divmod(iteration, self.task.per_epoch)
            for inputs, targets in self._batches(epoch, start):
                loss = self._step(inputs, targets, iteration)
                iteration += 1
                epoch = iteration // self.task.per_epoch
                directive = self.session.boundary(iteration, loss=loss, samples=len(targets), epoch=epoch)
                if directive.stop and iteration < self.total:
                    return False
                if iteration < self.total and self._is_due(iteration):  # all ranks are at this iteration
                    self._evaluate(iteration)
                if iteration >= self.total or self.evaluations.ended:
                    break
        if self.evaluations.last_iteration != iteration:
            self._evaluate(iteration)
        return True

    def _begin(self) -> int:
        """Watch the model, continue from a checkpoint; return the iteration that it is of, else 0."""
        session, training = self.session, self.training
        session.watch(
            self.task.model,
            self.task.optimizer,
            iterations=self.total,
            on_non_finite=training.on_non_finite or "Stop",
        )
        remembers = bool(training.keep_best) or training.patience is not None
        if remembers:
            session.keep("evaluations", self.evaluations)
        iteration = session.restore()
        missing = remembers and self.evaluations.last_iteration != iteration  # a checkpoint is written before it
        if missing and 0 < iteration < self.total and self._is_due(iteration):
            self._evaluate(iteration)
        return iteration

    def _is_due(self, iteration: int) -> bool:
        """Return whether the model is evaluated after an iteration."""
        return iteration % (self.training.evaluate_every or self.task.per_epoch) == 0

    def _batches(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield an epoch's batches from `start` on; their time is booked on "data"."""
        source = self.task.batches(epoch, start)
        while True:
            with phase(self.session.clock, "data"):
                batch = next(source, None)
            if batch is None:
                return
            yield batch

    def _step(self, inputs: Tensor, targets: Tensor, iteration: int) -> Tensor:
        """Do one optimizer step; return the mean loss over the micro-batches."""
        training, task = self.training, self.task
        set_learning_rate(task.optimizer, learning_rate(training, iteration, self.total))
        task.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.session.device.torch_device)
        inputs, targets = self.session.batch(inputs, targets)
        for part, answers in zip(inputs.chunk(training.accumulate), targets.chunk(training.accumulate), strict=True):
            loss = task.loss(part, answers) / training.accumulate
            loss.backward()
            total += loss.detach()
        self.session.step(training.gradient_clip, loss=total)
        return total

    @torch.no_grad()
    def _evaluate(self, iteration: int) -> None:
        """Measure the model, show it, and keep it where it is the best so far (all ranks)."""
        self.task.model.eval()
        found = self.task.evaluate(iteration)
        self.task.model.train()
        self.session.evaluated(
            found.loss,
            found.accuracy,
            epoch=iteration // self.task.per_epoch,
            perplexity=found.perplexity,
            sample=found.sample,
        )
        if self.evaluations.take(iteration, found.loss) and self.training.keep_best:
            self.session.keep_best()
