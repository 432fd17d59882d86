"""Which layers share hidden units: what `pairedUnits` leaves out of a row-parallel layer, the others leave out, too."""

from collections.abc import Sequence

from heterotp_api.formatting import listed
from torch import nn

from heterotp_trainer.tensor_parallel.linear import ParallelLinear

MOST_NAMED = 3  # layers that a message names


def paired(model: nn.Module) -> tuple[dict[ParallelLinear, tuple[ParallelLinear, ...]], tuple[ParallelLinear, ...]]:
    """Return the column-parallel layers whose hidden units each row-parallel layer takes, and the layers without one.

    The layers of one feed-forward network are attributes of one module: fc1 and fc2, or gate, up and down. With several
    networks in a module each one's row-parallel layer ends it.
    """
    pairs: dict[ParallelLinear, tuple[ParallelLinear, ...]] = {}
    linears = [each for each in model.modules() if isinstance(each, ParallelLinear) and each.spec.family == "ffn"]
    for module in model.modules():
        children = [each for each in module.children() if each in linears]
        lasts = [each for each in children if each.parallel == "row"]
        if len(lasts) == 1:
            pairs[lasts[0]] = tuple(each for each in children if each.parallel == "column")
            continue
        begin = 0
        for last in lasts:
            end = children.index(last)
            pairs[last], begin = tuple(children[begin:end]), end + 1
    pairs = {last: firsts for last, firsts in pairs.items() if firsts and last.spec.rows_per_unit == 1}
    known = {*pairs, *(first for firsts in pairs.values() for first in firsts)}
    return pairs, tuple(each for each in linears if each not in known)


def unpaired_problem(linears: Sequence[ParallelLinear]) -> str:
    """Return why these layers refuse pairedUnits, as `field: value: what would be right`."""
    layers = listed([f"'{linear.name}'" for linear in linears], MOST_NAMED)
    return (
        f"zero.pairedUnits: true: the layers that share the hidden units of {layers} are not known: make the "
        "column-parallel layers of a feed-forward network, then its row-parallel layer, as attributes of one module, "
        "or leave pairedUnits out"
    )
