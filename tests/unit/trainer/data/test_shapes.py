"""shapes-32: the same images everywhere, of ten classes that no pixel gives away, drawn once and kept."""

import hashlib

import numpy as np
import pytest
import torch
from heterotp_trainer.data import load_dataset, shapes32
from heterotp_trainer.data.shapes import CLASSES, SHAPES, SIDE, shapes


def test_images_are_the_same_for_the_same_seed_on_every_machine():
    images, labels = shapes(40, 7)
    assert images.shape == (40, 3, SIDE, SIDE) and images.dtype == np.uint8
    again = shapes(40, 7)
    assert np.array_equal(images, again[0]) and np.array_equal(labels, again[1])
    assert not np.array_equal(images, shapes(40, 8)[0])
    digest = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    assert digest[:16] == "b0fb5176058f6a70", "other images: raise VERSION, so that kept files are drawn again"


def test_every_class_is_as_frequent_as_any_other():
    _, labels = shapes(400, 0)
    assert np.bincount(labels).tolist() == [40] * CLASSES == [40] * len(SHAPES)


def test_shapes_differ_from_one_another():
    y, x = np.divmod(np.arange(64 * 64, dtype=np.float32), 64)
    masks = [inside(x / 26 - 1.2, y / 26 - 1.2) for inside in SHAPES.values()]
    for number, mask in enumerate(masks):
        assert 0.1 < mask.mean() < 0.6
        for other in masks[:number]:
            assert (mask != other).mean() > 0.08


def test_a_linear_model_fails():
    images, labels = shapes(3000, 0)
    data = torch.tensor(images).float().flatten(1).sub(127).div(60)
    targets = torch.nn.functional.one_hot(torch.tensor(labels).long(), CLASSES).float()
    weights = torch.linalg.solve(
        data[:2000].T @ data[:2000] + 2000 * torch.eye(data.shape[1]), data[:2000].T @ targets[:2000]
    )
    right = ((data[2000:] @ weights).argmax(1) == torch.tensor(labels[2000:])).float().mean()
    assert right < 0.3


@pytest.fixture
def small(monkeypatch):
    """A data set of few images."""
    monkeypatch.setattr(shapes32, "TRAIN", 30)
    monkeypatch.setattr(shapes32, "TEST", 20)


def count_drawings(monkeypatch):
    drawn = []
    monkeypatch.setattr(shapes32, "shapes", lambda count, seed: drawn.append(count) or shapes(count, seed))
    return drawn


def test_the_set_is_drawn_once_and_kept(small, tmp_path, monkeypatch):
    drawn = count_drawings(monkeypatch)
    first, second = (load_dataset("shapes-32", str(tmp_path)) for _ in range(2))
    assert drawn == [50]
    assert torch.equal(first.train_images, second.train_images)
    assert (len(first.train_labels), len(first.test_labels), first.classes, first.channels) == (30, 20, 10, 3)
    assert abs(float(first.train_images.mean())) < 1e-5
    assert [path.suffix for path in sorted((tmp_path / "heterotp").iterdir())] == [".lock", ".npy"]


def test_a_torn_file_is_drawn_again(small, tmp_path, monkeypatch):
    whole = load_dataset("shapes-32", str(tmp_path))
    file = next((tmp_path / "heterotp").glob("*.npy"))
    drawn = count_drawings(monkeypatch)
    for torn in (file.read_bytes()[:-5], b"", b"no array"):
        file.write_bytes(torn)
        assert torch.equal(load_dataset("shapes-32", str(tmp_path)).train_images, whole.train_images)
    assert drawn == [50] * 3


def test_the_users_cache_is_the_default(small, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_dataset("shapes-32")
    assert any((tmp_path / "heterotp").glob("shapes-32-*.npy"))


def test_a_folder_that_cannot_be_written_is_no_obstacle(small, tmp_path):
    (tmp_path / "file").write_text("")
    assert len(load_dataset("shapes-32", str(tmp_path / "file")).train_labels) == 30


def test_a_smaller_set_is_the_beginning_of_the_whole_one(small, tmp_path):
    whole, part = shapes32.load_shapes32(str(tmp_path), 30, 20), shapes32.load_shapes32(str(tmp_path), 10, 5)
    assert part.train_labels.tolist() == whole.train_labels[:10].tolist()
    assert part.test_labels.tolist() == whole.test_labels[:5].tolist()
