"""Random crops and flips of training images, drawn by seed and iteration, the same on every rank."""

import hashlib
from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor

MARGIN = 8  # a crop is shifted by up to one eighth of a side, at least one pixel


def augmented(images: Tensor, kinds: Collection[str], seed: int, iteration: int) -> Tensor:
    """Return images [B, C, S, S] shifted ("crop", filled with zeros) and mirrored in half of the cases ("flip")."""
    if not kinds:
        return images
    digest = hashlib.sha256(f"augmentation/{seed}/{iteration}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") % 2**63)
    if "crop" in kinds:
        images = _cropped(images, generator)
    if "flip" in kinds:
        mirrored = torch.rand(len(images), generator=generator) < 0.5
        images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
    return images


def _cropped(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return each image cut, at a place of its own, out of itself with a margin of zeros."""
    side = images.shape[-1]
    margin = max(1, side // MARGIN)
    places = torch.randint(2 * margin + 1, (2, len(images), 1), generator=generator)
    across = torch.arange(side)
    rows, columns = places[0] + across, places[1] + across  # [B, S]
    padded = F.pad(images, (margin,) * 4)
    each = torch.arange(len(images))[:, None, None]
    return padded[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
