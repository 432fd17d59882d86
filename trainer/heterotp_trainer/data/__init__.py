"""Data sets and batches, the same on every rank."""

from heterotp_trainer.data.batches import batches
from heterotp_trainer.data.dataset import Dataset
from heterotp_trainer.data.load import load_dataset

__all__ = ["Dataset", "batches", "load_dataset"]
