"""Loads a data set of images by its name in the manifest."""

from collections.abc import Callable

from heterotp_api.data_sets import ImageDataset

from heterotp_trainer.data.cifar10 import load_cifar10
from heterotp_trainer.data.dataset import Dataset
from heterotp_trainer.data.digits import load_digits
from heterotp_trainer.data.shapes32 import load_shapes32
from heterotp_trainer.data.synthetic import load_synthetic
from heterotp_trainer.errors import InputError

# by name in the manifest; path: the manifest's directory of files, seed: the job's
DATASETS: dict[ImageDataset, Callable[[str | None, int], Dataset]] = {
    "digits": lambda path, seed: load_digits(),
    "cifar10": lambda path, seed: load_cifar10(path),
    "shapes-32": lambda path, seed: load_shapes32(path),
    "synthetic": lambda path, seed: load_synthetic(seed),
}


def load_dataset(name: ImageDataset, path: str | None = None, seed: int = 0) -> Dataset:
    """Return the data set `name`; `path` is for cifar10 and shapes-32, `seed` for synthetic.

    Raises InputError for an unknown name, a missing path, or files that are missing or malformed.
    """
    if name not in DATASETS:
        raise InputError(f"spec.training.data.name: {name!r}: must be one of {', '.join(DATASETS)}")
    return DATASETS[name](path, seed)
