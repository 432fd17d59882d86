"""A data set of any size that needs no file."""

import torch

from heterotp_trainer.data.dataset import Dataset, normalized


def load_synthetic(seed: int, train: int = 2048, test: int = 512, side: int = 8, classes: int = 10) -> Dataset:
    """Return noisy copies of one random pattern per class: learnable, of any size, without a file."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(classes, 1, side, side, generator=generator)

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(classes, (count,), generator=generator)
        noise = torch.randn(count, 1, side, side, generator=generator)
        return patterns[labels] + 0.5 * noise, labels

    return normalized("synthetic", draw(train), draw(test), classes)
