"""Text that a language model writes, token by token; every rank computes its part and all take the same tokens."""

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Last = Callable[[Tensor], Tensor]


def generate(
    last_logits: Last,
    prompt: Sequence[int],
    count: int,
    *,
    longest: int,
    temperature: float,
    generator: torch.Generator,
    end: int | None = None,
) -> list[int]:
    """Return up to `count` tokens that follow the prompt, which must not be empty (all ranks).

    last_logits: tokens [1, T] -> whole logits [V] of the last one, the same on all ranks. longest: tokens that the
    model reads at once. temperature 0 takes the likeliest token. Ends where the model ends the document.
    """
    tokens = list(prompt)
    for _ in range(count):
        logits = last_logits(torch.tensor([tokens[-longest:]]))
        token = _chosen(logits.double().cpu(), temperature, generator)
        if token == end:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


def _chosen(logits: Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0 or not bool(torch.isfinite(logits).all()):
        return int(logits.argmax())
    chances = torch.softmax(logits / temperature, dim=0)
    return int(torch.multinomial(chances, 1, generator=generator))


def sample_generator(seed: int, iteration: int) -> torch.Generator:
    """Return the generator of the text written after an iteration."""
    digest = hashlib.sha256(f"sample/{seed}/{iteration}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") % 2**63)
