"""Data sets and batches, the same on every rank."""

from heterotp_trainer.data.batches import batch_hash, batches
from heterotp_trainer.data.dataset import Dataset
from heterotp_trainer.data.load import load_dataset

__all__ = ["Dataset", "batch_hash", "batches", "load_dataset"]
