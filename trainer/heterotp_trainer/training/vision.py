"""The built-in ViT trainer, a client of the library."""

import torch
import torch.nn.functional as F
from heterotp_api.training import Training
from torch import Tensor

from heterotp_trainer.data import Dataset, batches, load_dataset
from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.errors import InputError
from heterotp_trainer.model.vit import VisionTransformer
from heterotp_trainer.session import Session
from heterotp_trainer.training.optimizer import adamw
from heterotp_trainer.training.schedules import learning_rate, set_learning_rate

EVALUATION_BATCH = 256


class Trainer:
    """Trains one vision transformer on one data set."""

    def __init__(self, session: Session, training: Training) -> None:
        self.session, self.training = session, training
        self.data: Dataset = load_dataset(training.data.name, training.data.path, training.seed)
        shape = training.model.resolve()
        tokens = (self.data.image_size // shape.patch_size) ** 2 + 1
        rows = training.batch_size // training.accumulate * tokens
        product = (rows, shape.hidden_size, max(1, shape.ffn_units // session.environment.ranks))
        tp = session.shard(probe=product)
        self.device = session.device.torch_device
        self.model = VisionTransformer(
            tp,
            shape,
            image_size=self.data.image_size,
            channels=self.data.channels,
            classes=self.data.classes,
            seed=training.seed,
            recompute=training.recompute,
        ).to(self.device)
        self.optimizer = adamw(self.model.parameters(), training, self.model.embeddings)
        self.per_epoch = len(self.data.train_labels) // training.batch_size
        if self.per_epoch == 0:
            raise InputError(
                f"spec.training.batchSize: {training.batch_size} is more than the data set's training images"
            )
        self.total = training.iterations or (training.epochs or 1) * self.per_epoch

    def run(self) -> bool:
        """Train until the end or a stop; return whether the end was reached."""
        session = self.session
        session.watch(
            self.model, self.optimizer, iterations=self.total, on_non_finite=self.training.on_non_finite or "Stop"
        )
        iteration = session.restore()
        while iteration < self.total:
            epoch, start = divmod(iteration, self.per_epoch)
            for images, labels in self._epoch(epoch, start):
                if iteration >= self.total:
                    break
                loss = self._step(images, labels, iteration)
                iteration += 1
                epoch, place = divmod(iteration, self.per_epoch)
                directive = session.boundary(iteration, loss=loss, samples=len(labels), epoch=epoch)
                if directive.stop and iteration < self.total:
                    return False
                if place == 0 and iteration < self.total:  # all ranks are at the end of this epoch
                    self._evaluate(epoch)
        self._evaluate(iteration // self.per_epoch)
        return True

    def _epoch(self, epoch: int, start: int):  # type: ignore[no-untyped-def]
        """Yield an epoch's batches from `start` on; its time is booked on "data"."""
        source = batches(self.data, self.training.batch_size, self.training.seed, epoch, start)
        while True:
            with phase(self.session.clock, "data"):
                batch = next(source, None)
            if batch is None:
                return
            yield batch

    def _step(self, images: Tensor, labels: Tensor, iteration: int) -> Tensor:
        """Do one optimizer step; return the mean loss over the micro-batches."""
        training = self.training
        set_learning_rate(self.optimizer, learning_rate(training, iteration, self.total))
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.device)
        images, labels = self.session.batch(images, labels)
        for part, answers in zip(images.chunk(training.accumulate), labels.chunk(training.accumulate), strict=True):
            loss = F.cross_entropy(self.model(part), answers) / training.accumulate
            loss.backward()
            total += loss.detach()
        self.session.step(training.gradient_clip, loss=total)
        return total

    @torch.no_grad()
    def _evaluate(self, epoch: int) -> None:
        """Measure loss and accuracy on the test set (all ranks)."""
        self.model.eval()
        right, loss = 0, 0.0
        for images, labels in zip(
            self.data.test_images.split(EVALUATION_BATCH), self.data.test_labels.split(EVALUATION_BATCH), strict=True
        ):
            logits = self.model(images.to(self.device))
            answers = labels.to(self.device)
            loss += float(F.cross_entropy(logits, answers, reduction="sum"))
            right += int((logits.argmax(1) == answers).sum())
        count = len(self.data.test_labels)
        self.model.train()
        self.session.evaluated(loss / count, right / count, epoch=epoch)


def main(session: Session) -> None:
    """Train one rank of the built-in trainer."""
    ended = Trainer(session, session.environment.spec.training or Training()).run()
    session.finish(state="succeeded" if ended else "stopped")
