"""Makes every rank enter the backward sum of every column linear, whatever its user code did with an empty output.

A rank that owns no units gets outputs [M, 0], and code may leave them out of the graph. Then this rank alone would skip
the sum in their backward, and the others would wait for it, or pair it with the next sum of the same shape. So a column
linear also returns a link, a scalar that takes no part in the result, and the next row linear takes all links as
inputs: in autograd's graph the row linear leads to every column linear before it. Autograd runs nodes in descending
order of their creation, which is the same on all ranks.
"""

import torch
from torch import Tensor


class BackwardLinks:
    """The links of column linears that no row linear has taken yet.

    Kept apart by the backward pass in which a forward runs (recomputation of activations), because a recomputed graph
    is not the one that autograd walks.
    """

    def __init__(self) -> None:
        self._links: dict[int, list[Tensor]] = {}

    def add(self, link: Tensor) -> None:
        """Keep the link of a column linear; without gradients there is no backward to enter."""
        if link.requires_grad:
            self._links.setdefault(backward_pass(), []).append(link)

    def take(self) -> tuple[Tensor, ...]:
        """Return the links since the last row linear, and forget them."""
        return tuple(self._links.pop(backward_pass(), ()))

    def clear(self) -> None:
        """Forget all links: those that remain belong to a forward that has ended."""
        self._links.clear()


def link_of(output: Tensor) -> Tensor:
    """Return the link of a column linear: a scalar beside its output."""
    return output.new_zeros(())


def no_gradient(bias: Tensor | None) -> Tensor | None:
    """Return the gradient of a bias whose sum is in no graph on this rank.

    With it the optimizer holds the same kinds of state on every rank, and units can move there.
    """
    return None if bias is None else torch.zeros_like(bias)


def backward_pass() -> int:
    """Return the number of the backward pass that runs now, -1 outside of one."""
    return int(torch._C._current_graph_task_id())
