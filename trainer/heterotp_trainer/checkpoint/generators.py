"""The state of the global random generators that a user's code may draw from; nothing is drawn here."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def generator_states(device: torch.device) -> dict[str, Any]:
    """Return the states of the generators of torch (CPU, and `device` where it is a GPU), Python and numpy."""
    version, words, gauss = random.getstate()
    name, keys, *rest = np.random.get_state()
    found: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": (version, torch.tensor(words), gauss),
        "numpy": (str(name), torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest),
    }
    if device.type == "cuda":
        found["cuda"] = torch.cuda.get_rng_state(device)
    return found


def resume_generators(states: dict[str, Any], device: torch.device) -> None:
    """Continue the sequences of `generator_states`; a generator that this machine lacks is left out."""
    torch.set_rng_state(states["torch"])
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


@contextmanager
def drawing_as_seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Let user code draw from torch's generators as after a seed, and continue them afterwards as if it had not."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
        for each in devices:
            torch.cuda.set_rng_state(torch.Generator(each).manual_seed(seed).get_state(), each)
        yield
