"""Loads a data set by its name in the manifest."""

import torch

from heterotp_trainer.data.cifar import load_cifar10
from heterotp_trainer.data.dataset import Dataset, normalized

SPLIT_SEED = 20200  # fixed: the split must not move with the job's seed, else accuracies cannot be compared
NAMES = ("digits", "cifar10", "synthetic")


def load_dataset(name: str, path: str | None = None, seed: int = 0) -> Dataset:
    """Return the data set `name`; `path` is for cifar10, `seed` for synthetic.

    Raises ValueError for an unknown name, a missing path or files that are not what they should be.
    """
    if name == "digits":
        return _digits()
    if name == "synthetic":
        return _synthetic(seed)
    if name == "cifar10":
        if path is None:
            raise ValueError("training.data.path: absent: cifar10 needs a directory with its files")
        return load_cifar10(path)
    raise ValueError(f"training.data.name: {name!r}: must be one of {', '.join(NAMES)}")


def _digits() -> Dataset:
    """The real handwritten digits of scikit-learn: 1797 images of 8x8, 10 classes, 80/20 stratified."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    train_x, test_x, train_y, test_y = train_test_split(
        digits.images, digits.target, test_size=0.2, stratify=digits.target, random_state=SPLIT_SEED
    )

    def pair(images: object, labels: object) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor(images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(labels)

    return normalized("digits", pair(train_x, train_y), pair(test_x, test_y), 10)


def _synthetic(seed: int, train: int = 2048, test: int = 512, side: int = 8, classes: int = 10) -> Dataset:
    """Noisy copies of one random pattern per class: learnable, of any size, without a file."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(classes, 1, side, side, generator=generator)

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(classes, (count,), generator=generator)
        noise = torch.randn(count, 1, side, side, generator=generator)
        return patterns[labels] + 0.5 * noise, labels

    return normalized("synthetic", draw(train), draw(test), classes)
