"""Data sets: the real digits, CIFAR-10's two layouts from small files, synthetic; the order of batches."""

import pickle  # noqa: TID251 (writes the published layout)
from typing import get_args

import numpy as np
import pytest
import torch
from heterotp_api.data_sets import IMAGE_SIZES, ImageDataset
from heterotp_trainer.data import batches, load_dataset
from heterotp_trainer.data.cifar10 import PIXELS, TEST, TRAIN
from heterotp_trainer.data.load import DATASETS


def records(number):
    draw = np.random.default_rng(number)
    return draw.integers(0, 256, (4, PIXELS), dtype=np.uint8), [number % 10, 1, 2, 9]


def write_python(folder):
    for number, name in enumerate((*TRAIN, TEST)):
        data, labels = records(number)
        (folder / name).write_bytes(pickle.dumps({b"data": data, b"labels": labels}, protocol=2))


def write_binary(folder):
    for number, name in enumerate((*TRAIN, TEST)):
        data, labels = records(number)
        rows = np.concatenate([np.array(labels, dtype=np.uint8)[:, None], data], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())


def test_digits_are_split_the_same_for_any_seed():
    first, second = load_dataset("digits", seed=1), load_dataset("digits", seed=2)
    assert first.train_images.shape == (1438, 1, 8, 8)
    assert first.test_images.shape == (359, 1, 8, 8)
    assert torch.equal(first.test_images, second.test_images)
    assert torch.bincount(first.test_labels).min() >= 34
    assert abs(first.train_images.mean()) < 1e-5


def test_synthetic_is_seeded_and_learnable():
    data, other = load_dataset("synthetic", seed=1), load_dataset("synthetic", seed=2)
    assert not torch.equal(data.train_images, other.train_images)
    means = torch.stack([data.train_images[data.train_labels == c].mean(0) for c in range(10)]).flatten(1)
    nearest = torch.cdist(data.test_images.flatten(1), means).argmin(1)
    assert (nearest == data.test_labels).float().mean() > 0.95


def test_both_layouts_of_cifar10_give_the_same(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "py" / "cifar-10-batches-py").mkdir(parents=True)
    write_binary(tmp_path / "bin")
    write_python(tmp_path / "py" / "cifar-10-batches-py")
    one, two = load_dataset("cifar10", str(tmp_path / "bin")), load_dataset("cifar10", str(tmp_path / "py"))
    assert one.train_images.shape == (20, 3, 32, 32)
    assert one.test_labels.tolist() == [5, 1, 2, 9]
    assert torch.equal(one.train_images, two.train_images)
    assert torch.equal(one.train_labels, two.train_labels)


@pytest.mark.parametrize("write", [write_python, write_binary])
def test_a_truncated_file_is_named(tmp_path, write):
    write(tmp_path)
    file = next(tmp_path.glob("data_batch_3*"))
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(ValueError, match=r"training\.data\.path: .*data_batch_3.*truncated"):
        load_dataset("cifar10", str(tmp_path))


def test_a_missing_part_is_named(tmp_path):
    write_binary(tmp_path)
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(ValueError, match=r"data_batch_4\.bin: cannot be read"):
        load_dataset("cifar10", str(tmp_path))


@pytest.mark.parametrize(("path", "message"), [("absent", "no such directory"), ("", "neither"), (None, "absent")])
def test_a_wrong_path_is_refused(tmp_path, path, message):
    where = None if path is None else str(tmp_path / path)
    with pytest.raises(ValueError, match=rf"training\.data\.path.*{message}"):
        load_dataset("cifar10", where)


class Evil:
    def __reduce__(self):
        return print, ("this must not run",)


def test_a_pickle_that_runs_code_is_refused(tmp_path, capsys):
    write_python(tmp_path)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": Evil(), b"labels": []}))
    with pytest.raises(ValueError, match="print has no place"):
        load_dataset("cifar10", str(tmp_path))
    assert capsys.readouterr().out == ""


def test_an_unknown_data_set_is_refused():
    with pytest.raises(ValueError, match=r"training\.data\.name: 'mnist'.*digits, cifar10, shapes-32, synthetic"):
        load_dataset("mnist")


def hashes(data, seed, epoch, start=0):
    return [(images.sum().item(), tuple(labels.tolist())) for images, labels in batches(data, 64, seed, epoch, start)]


def test_batches_depend_on_seed_and_epoch_alone():
    data = load_dataset("digits")
    order = hashes(data, 0, 0)
    assert len(order) == 1438 // 64
    assert len(set(order)) == len(order)
    assert order == hashes(data, 0, 0)
    assert order[5:] == hashes(data, 0, 0, start=5)
    assert order != hashes(data, 0, 1)
    assert order != hashes(data, 1, 0)


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match=r"training\.batchSize: 2000: digits has only 1438"):
        list(batches(load_dataset("digits"), 2000, 0, 0))


def test_every_data_set_of_the_manifest_can_be_loaded():
    assert list(DATASETS) == list(IMAGE_SIZES) == list(get_args(ImageDataset))


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_images_have_the_size_that_the_api_states(name):
    assert load_dataset(name).image_size == IMAGE_SIZES[name]
