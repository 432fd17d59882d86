"""The handwritten digits of scikit-learn."""

import importlib.util
from pathlib import Path

import numpy as np
import torch

from heterotp_trainer.data.dataset import Dataset, normalized

SPLIT_SEED = 20200  # fixed: accuracies of jobs with different seeds must be comparable


def load_digits() -> Dataset:
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
