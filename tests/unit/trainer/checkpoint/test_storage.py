"""Rank 0's thread for files: in order, with its errors, and what it shows."""

import pytest
import torch
import torch.distributed as dist
from heterotp_trainer.checkpoint.errors import CheckpointError, OwnerError
from heterotp_trainer.checkpoint.storage import Progress, Storage


@pytest.fixture
def storage():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield Storage(0, None, 60)
    dist.destroy_process_group()


def test_what_was_asked_for_before_is_done_before(storage):
    done = []
    for number in range(3):
        storage.later(lambda number=number: done.append(number))
    answer = storage.wait(lambda: [*done, 3], len)
    assert (answer.own, answer.said) == ([0, 1, 2, 3], 4)


@pytest.mark.parametrize(
    ("error", "kind"), [(OwnerError("taken"), OwnerError), (OSError("gone"), CheckpointError)], ids=["owner", "disk"]
)
def test_an_error_is_raised_by_the_next_wait(storage, error, kind):
    def fail():
        raise error

    storage.later(fail)
    with pytest.raises(kind, match=str(error)):
        storage.wait(lambda: pytest.fail("after an error"))
    assert storage.wait(lambda: 1).own == 1


def test_tensors_arrive_with_name_and_shape(storage):
    read = storage.reader(iter([("model/a", torch.zeros(2, 0, dtype=torch.bfloat16))]))
    header = read()
    assert (header.name, header.dtype, header.shape) == ("model/a", torch.bfloat16, (2, 0))
    assert read() is None


def test_progress_is_a_share_where_bytes_are_counted():
    progress = Progress()
    assert progress.text == ""
    progress.begin("restoring", 200)
    progress.add(83)
    assert progress.text == "restoring 41 %"
    progress.begin("writing a checkpoint", 0)
    assert progress.text == "writing a checkpoint"
