"""The built-in trainer of vision transformers: its model, its data, and what an evaluation measures."""

from collections.abc import Iterator

import torch.nn.functional as F
from heterotp_api.training import Training
from torch import Tensor

from heterotp_trainer.data import Dataset, batches, load_dataset
from heterotp_trainer.data.augmentation import augmented
from heterotp_trainer.errors import InputError
from heterotp_trainer.model.vit import VisionTransformer
from heterotp_trainer.session import Session
from heterotp_trainer.training.evaluations import Evaluation
from heterotp_trainer.training.optimizer import adamw

EVALUATION_BATCH = 256


class Vision:
    """One vision transformer on one data set."""

    def __init__(self, session: Session, training: Training) -> None:
        self.training = training
        name = training.data.name
        assert name != "text" and name != "pydoc"  # refused in the manifest
        self.data: Dataset = load_dataset(name, training.data.path, training.seed)
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
        self.optimizer = adamw(self.model.named_parameters(), training, self.model.embeddings)
        self.per_epoch = len(self.data.train_labels) // training.batch_size
        if self.per_epoch == 0:
            raise InputError(
                f"spec.training.batchSize: {training.batch_size} is more than the data set's training images"
            )

    def batches(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """See Task."""
        training = self.training
        kinds, first = training.augmentation or (), epoch * self.per_epoch + start
        for number, (images, labels) in enumerate(
            batches(self.data, training.batch_size, training.seed, epoch, start), start=first
        ):
            yield augmented(images, kinds, training.seed, number), labels

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """See Task."""
        return F.cross_entropy(self.model(inputs), targets, label_smoothing=self.training.label_smoothing or 0.0)

    def evaluate(self, iteration: int) -> Evaluation:
        """Measure loss and accuracy on the test set (all ranks)."""
        right, loss = 0, 0.0
        for images, labels in zip(
            self.data.test_images.split(EVALUATION_BATCH), self.data.test_labels.split(EVALUATION_BATCH), strict=True
        ):
            logits = self.model(images.to(self.device))
            answers = labels.to(self.device)
            loss += float(F.cross_entropy(logits, answers, reduction="sum"))
            right += int((logits.argmax(1) == answers).sum())
        count = len(self.data.test_labels)
        return Evaluation(loss / count, right / count)
