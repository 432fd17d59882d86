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
        self.iteration = 0
        self._begun = self._stopped = self._repeats_evaluations = False
        self._evaluated = 0  # the last iteration whose evaluation was carried out to its end
        self._before_evaluation = self.evaluations.state_dict()

    def run(self) -> bool:
        """Train until the end or a stop; return whether the end was reached.

        Called again after `regroup`, it goes on from there.
        """
        if not self._begun:
            self.iteration = self._begin()
            self._begun = True
        if self._stopped:
            return False
        self._evaluate_missing()
        while self.iteration < self.total and not self.evaluations.ended:
            epoch, start = divmod(self.iteration, self.task.per_epoch)
            for inputs, targets in self._batches(epoch, start):
                loss = self._step(inputs, targets, self.iteration)
                self.iteration += 1
                epoch = self.iteration // self.task.per_epoch
                directive = self.session.boundary(self.iteration, loss=loss, samples=len(targets), epoch=epoch)
                if directive.stop and self.iteration < self.total:
                    return False
                if self.iteration < self.total and self._is_due(self.iteration):  # all ranks are at this iteration
                    self._evaluate(self.iteration)
                if self.iteration >= self.total or self.evaluations.ended:
                    break
        if self.evaluations.last_iteration != self.iteration:
            self._evaluate(self.iteration)
        return True

    def regroup(self) -> None:
        """Go on without ranks that were lost (all survivors): from where all of them are."""
        found = self.session.regroup(evaluated=self._evaluated)
        self.task.model.train()
        if self.evaluations.last_iteration > found.evaluated:  # not all have that evaluation: it is repeated
            self.evaluations.load_state_dict(self._before_evaluation)
            self._evaluated = found.evaluated
        self.iteration = found.iteration
        self._stopped = found.stop and found.iteration < self.total

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
        if session.came_back:  # where the others are
            self.evaluations.last_iteration = session.last_evaluated
        self._evaluated = self.evaluations.last_iteration
        # a checkpoint is written, and a rank let in, before an evaluation
        self._repeats_evaluations = remembers or session.came_back
        return iteration

    def _evaluate_missing(self) -> None:
        """Evaluate where training continues from, if that was due and not done."""
        iteration = self.iteration
        missing = self._repeats_evaluations and self.evaluations.last_iteration != iteration
        if missing and 0 < iteration < self.total and self._is_due(iteration):
            self._evaluate(iteration)
        self._repeats_evaluations = True

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
        self._before_evaluation = self.evaluations.state_dict()
        if self.evaluations.take(iteration, found.loss) and self.training.keep_best:
            self.session.keep_best()
        self._evaluated = iteration
