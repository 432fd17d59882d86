"""Losses that a device has not delivered yet."""

import torch
from heterotp_trainer.reporting.loss_reader import LossReader


class Copy:
    """A copy that is complete once `done`; a broken device raises."""

    def __init__(self, broken=False):
        self.done, self.broken = False, broken

    def query(self):
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self.done

    def synchronize(self):
        self.done = True


def test_the_newest_loss_is_known_at_once_on_a_host():
    losses = LossReader()
    assert losses.take(torch.tensor(3.0)) is None
    assert losses.newest() == 3.0
    assert losses.take(torch.tensor(2.0)) == 3.0
    assert (losses.newest(), losses.wait()) == (2.0, 2.0)
    assert losses.take(None) == losses.newest() == 2.0


def test_a_loss_that_is_still_copied_is_not_waited_for():
    losses = LossReader()
    losses.take(torch.tensor(3.0))
    losses.take(torch.tensor(2.0))
    losses._copied = Copy()
    assert losses.newest() == 3.0
    losses._copied.done = True
    assert losses.newest() == 2.0


def test_a_broken_device_raises_nothing():
    losses = LossReader()
    losses.take(torch.tensor(3.0))
    losses.take(torch.tensor(2.0))
    losses._copied = Copy(broken=True)
    assert losses.newest() == 3.0
