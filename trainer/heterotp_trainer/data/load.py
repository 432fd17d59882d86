"""Loads a data set by its name in the manifest."""

import importlib.util
from pathlib import Path

import numpy as np
import torch

from heterotp_trainer.data.cifar import load_cifar10
from heterotp_trainer.data.dataset import Dataset, normalized

SPLIT_SEED = 20200  # fixed: accuracies of jobs with different seeds must be comparable
NAMES = ("digits", "cifar10", "synthetic")


def load_dataset(name: str, path: str | None = None, seed: int = 0) -> Dataset:
    """Return the data set `name`; `path` is for cifar10, `seed` for synthetic.

    Raises ValueError for an unknown name, a missing path, or files that are missing or malformed.
    """
    if name == "digits":
        return _digits()
    if name == "synthetic":
        return _synthetic(seed)
    if name == "cifar10":
        if path is None:
            raise ValueError("spec.training.data.path: absent: cifar10 needs a directory with its files")
        return load_cifar10(path)
    raise ValueError(f"spec.training.data.name: {name!r}: must be one of {', '.join(NAMES)}")


def _digits() -> Dataset:
    """Return the handwritten digits of scikit-learn: 1797 images of 8x8, 10 classes, 80/20 stratified.

    Its data file is read without importing scikit-learn, which would take seconds in every rank.
    """
    package = importlib.util.find_spec("sklearn")
    assert package is not None and package.submodule_search_locations, "scikit-learn is a dependency of the trainer"
    table = np.loadtxt(Path(package.submodule_search_locations[0], "datasets/data/digits.csv.gz"), delimiter=",")
    images = torch.tensor(table[:, :-1], dtype=torch.float32).view(-1, 1, 8, 8) / 16
    labels = torch.tensor(table[:, -1], dtype=torch.int64)
    train, test = _stratified(labels, test_share=0.2)
    return normalized("digits", (images[train], labels[train]), (images[test], labels[test]), 10)


def _stratified(labels: torch.Tensor, test_share: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices of training and test items; the test holds the same share of every class."""
    generator = torch.Generator().manual_seed(SPLIT_SEED)
    order = torch.randperm(len(labels), generator=generator)
    test = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        members = order[labels[order] == label]
        test[members[: round(test_share * len(members))]] = True
    return (~test).nonzero().flatten(), test.nonzero().flatten()


def _synthetic(seed: int, train: int = 2048, test: int = 512, side: int = 8, classes: int = 10) -> Dataset:
    """Return noisy copies of one random pattern per class: learnable, of any size, without a file."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(classes, 1, side, side, generator=generator)

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(classes, (count,), generator=generator)
        noise = torch.randn(count, 1, side, side, generator=generator)
        return patterns[labels] + 0.5 * noise, labels

    return normalized("synthetic", draw(train), draw(test), classes)
