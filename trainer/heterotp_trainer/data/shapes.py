"""shapes-32: images of ten shapes, drawn by us, as large and as many as CIFAR-10's.

The class is the shape. Most shapes, not all, also have the stripes of their class; the others have those of any class,
as has the clutter. Place, size, angle, colours, and where stripes begin are drawn at random, so that no pixel says
anything about the class by itself: a linear model fails. Values of pixels follow from whole numbers and from the four
basic operations only, which give the same bits on every machine: ranks compare their batches.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE, CLASSES, TRAIN, TEST = 32, 10, 50_000, 10_000
VERSION = 1  # of the drawing: another one gives other images
SEED = 3200  # fixed: accuracies of jobs with different seeds must be comparable
CHUNK = 1000  # images drawn at once
CLUTTER = 4  # small pieces behind the shape
NOISE = 20  # half of the width of the noise, of 255
AWAY, SIZES, TURN = 3.0, (9.0, 12.5), 0.45  # pixels from the middle, half of the side in pixels, radians
CONTRAST = (40.0, 90.0)  # between the shape and what is behind it, darker or brighter
SWING, FAINT = 50.0, 15.0  # of the stripes of a shape, and of what is behind it
PERIODS, ANGLES = (3.0, 6.0), 5  # of stripes, by class: pixels, and directions in half a turn
OWN = 0.75  # share of shapes with the stripes of their class
Array = NDArray[np.float32]
Mask = NDArray[np.bool_]
Random = np.random.Generator


def _rectangle(u: Array, v: Array, width: float, height: float) -> Mask:
    return (np.abs(u) <= width) & (np.abs(v) <= height)


def _square_distance(u: Array, v: Array) -> Array:
    return np.maximum(np.abs(u), np.abs(v))


# inside or not; u, v: coordinates in the shape's own frame, about -1..1
SHAPES: dict[str, Callable[[Array, Array], Mask]] = {
    "disk": lambda u, v: u * u + v * v <= 0.85,
    "ring": lambda u, v: np.abs(u * u + v * v - 0.68) <= 0.32,
    "square": lambda u, v: _square_distance(u, v) <= 0.8,
    "frame": lambda u, v: np.abs(_square_distance(u, v) - 0.68) <= 0.2,
    "triangle": lambda u, v: (v >= -0.65) & (np.abs(u) * 1.75 + v <= 1),
    "plus": lambda u, v: _rectangle(u, v, 0.3, 1) | _rectangle(u, v, 1, 0.3),
    "bars": lambda u, v: (np.abs(np.abs(u) - 0.6) <= 0.25) & (np.abs(v) <= 0.95),
    "crescent": lambda u, v: (u * u + v * v <= 1) & ((u - 0.5) * (u - 0.5) + v * v > 0.6),
    "angle": lambda u, v: _rectangle(u, v, 0.85, 0.85) & ((u <= -0.25) | (v <= -0.25)),
    "hourglass": lambda u, v: (np.abs(v) <= 0.9) & (np.abs(u) <= np.abs(v) + 0.05),
}


def shapes(count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images [count, 3, 32, 32] and labels [count]; the same ones for the same numbers."""
    generator = np.random.default_rng([VERSION, seed])
    labels = generator.permutation((np.arange(count) % CLASSES).astype(np.uint8))
    parts = [_drawn(labels[at : at + CHUNK], generator) for at in range(0, count, CHUNK)]
    return np.concatenate(parts), labels


def _drawn(labels: NDArray[np.uint8], rng: Random) -> NDArray[np.uint8]:
    """Return images [n, 3, 32, 32] of these classes."""
    count = len(labels)
    base = _between(rng, count * 3, 100, 155).reshape(count, 3, 1)
    image = base + _stripes(_frame(count, rng, SIDE, (10, 20))[0], FAINT, rng)
    for _ in range(CLUTTER):
        _paint(image, _piece(count, rng), base + _contrast(count, rng) + _texture(_any(count, rng), rng))
    own = np.where(rng.random(count) < OWN, labels, _any(count, rng))
    _paint(image, _shape(labels, rng), base + _contrast(count, rng) + _texture(own, rng))
    noise = rng.integers(-NOISE, NOISE, (2, *image.shape), np.int16, endpoint=True).sum(0, dtype=np.int16) // 2
    pixels: NDArray[np.uint8] = np.clip(image.astype(np.int16) + noise, 0, 255).astype(np.uint8)
    return pixels.reshape(count, 3, SIDE, SIDE)


def _paint(image: Array, mask: Mask, colours: Array) -> None:
    np.copyto(image, colours, where=mask[:, None, :])


def _between(rng: Random, count: int, low: float, high: float) -> Array:
    """Return numbers [count, 1]."""
    return (low + (high - low) * rng.random((count, 1), np.float32)).astype(np.float32)


def _grid() -> tuple[Array, Array]:
    """Return x and y [1, 1024] of the pixels, from the middle of the image."""
    y, x = np.divmod(np.arange(SIDE * SIDE, dtype=np.float32)[None], SIDE)
    middle = np.float32((SIDE - 1) / 2)
    return x - middle, y - middle


def _frame(
    count: int, rng: Random, away: float, sizes: tuple[float, float], turn: float = np.pi
) -> tuple[Array, Array]:
    """Return u and v [count, 1024] of frames that are moved by up to `away`, turned, and of random size."""
    x, y = _grid()
    angle = _between(rng, count, -turn, turn).astype(np.float64)
    cosine: Array = np.cos(angle).astype(np.float32)
    sine: Array = np.sin(angle).astype(np.float32)
    x, y = x - _between(rng, count, -away, away), y - _between(rng, count, -away, away)
    size = _between(rng, count, *sizes)
    return np.divide(cosine * x + sine * y, size), np.divide(cosine * y - sine * x, size)


def _shape(labels: NDArray[np.uint8], rng: Random) -> Mask:
    u, v = _frame(len(labels), rng, AWAY, SIZES, TURN)
    mask = np.zeros(u.shape, np.bool_)
    for label, inside in enumerate(SHAPES.values()):
        mine = labels == label
        mask[mine] = inside(u[mine], v[mine])
    return mask


def _piece(count: int, rng: Random) -> Mask:
    u, v = _frame(count, rng, SIDE / 2, (1.5, 3.5))
    return _rectangle(u, v, 1, 0.6)


def _contrast(count: int, rng: Random) -> Array:
    """Return differences of colour [count, 3, 1], all darker or all brighter."""
    sign: Array = rng.integers(0, 2, (count, 1, 1)).astype(np.float32) * np.float32(2) - np.float32(1)
    return sign * _between(rng, count * 3, *CONTRAST).reshape(count, 3, 1)


def _any(count: int, rng: Random) -> NDArray[np.int64]:
    """Return classes at random."""
    return rng.integers(0, CLASSES, count)


def _texture(kinds: NDArray[Any], rng: Random) -> Array:
    """Return differences of colour [count, 3, 1024]: the stripes of these classes, which begin anywhere."""
    count = len(kinds)
    x, y = _grid()
    angle = (kinds % ANGLES)[:, None] * (np.pi / ANGLES) + _between(rng, count, -0.15, 0.15)
    period: Array = np.where(kinds < ANGLES, *PERIODS)[:, None].astype(np.float32)
    cosine: Array = np.cos(angle).astype(np.float32)
    sine: Array = np.sin(angle).astype(np.float32)
    along: Array = np.divide(cosine * x + sine * y, period)
    return _stripes(along + _between(rng, count, 0, 1), SWING, rng)


def _stripes(along: Array, most: float, rng: Random) -> Array:
    """Return differences of colour [count, 3, 1024]; along: how many stripes a pixel lies away from any."""
    wave: Array = np.abs(along - np.floor(along) - np.float32(0.5)) * np.float32(4) - np.float32(1)  # -1..1
    sign = rng.integers(0, 2, (len(along), 1, 1)).astype(np.float32) * np.float32(2) - np.float32(1)
    swing: Array = sign * _between(rng, len(along) * 3, most / 2, most).reshape(-1, 3, 1)
    return swing * wave[:, None, :]
