"""Crops and flips of training images."""

import torch
from heterotp_trainer.data.augmentation import augmented

IMAGES = torch.arange(64 * 2 * 8 * 8, dtype=torch.float32).view(64, 2, 8, 8) + 1


def test_without_kinds_images_are_untouched():
    assert augmented(IMAGES, (), 0, 0) is IMAGES


def test_half_of_the_images_are_mirrored():
    found = augmented(IMAGES, ("flip",), 0, 3)
    mirrored = [torch.equal(one, other.flip(2)) for one, other in zip(found, IMAGES, strict=True)]
    same = [torch.equal(one, other) for one, other in zip(found, IMAGES, strict=True)]
    assert all(a != b for a, b in zip(mirrored, same, strict=True)) and 16 < sum(mirrored) < 48


def test_crops_are_shifted_by_up_to_an_eighth():
    found = augmented(IMAGES, ("crop",), 0, 3)
    shifts = set()
    for one, other in zip(found, IMAGES, strict=True):
        padded = torch.nn.functional.pad(other, (1, 1, 1, 1))
        places = [(y, x) for y in range(3) for x in range(3) if torch.equal(one, padded[:, y : y + 8, x : x + 8])]
        assert len(places) == 1
        shifts.add(places[0])
    assert len(shifts) == 9


def test_they_depend_on_seed_and_iteration_alone():
    found = augmented(IMAGES, ("crop", "flip"), 1, 5)
    torch.rand(3)
    assert torch.equal(found, augmented(IMAGES, ("crop", "flip"), 1, 5))
    assert not torch.equal(found, augmented(IMAGES, ("crop", "flip"), 1, 6))
    assert not torch.equal(found, augmented(IMAGES, ("crop", "flip"), 2, 5))
