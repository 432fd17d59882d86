"""torch.nn.MultiheadAttention as self-attention on this rank's heads; its parameters keep their names."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.fused import FusedColumnLinear


class ParallelMultiheadAttention(nn.MultiheadAttention):
    """[B, T, D] (or [T, B, D]) -> the same, with query, key and value equal.

    Made of a whole one by `adopt`: `in_proj` computes q, k and v of this rank's heads, and `out_proj`, a row-parallel
    linear, the sum over all heads. Unlike the whole one it returns no weights of the attention unless they are asked
    for, which is refused: a rank has those of its own heads.
    """

    in_proj: FusedColumnLinear

    @classmethod
    def adopt(cls, module: nn.MultiheadAttention, in_proj: FusedColumnLinear) -> None:
        """Turn a whole attention into this rank's part of it; its `out_proj` is replaced apart."""
        module.__class__ = cls
        module.in_proj = in_proj
        # torch's layers ask for it before they take a path of their own around forward
        module._qkv_same_embed_dim = False

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """Return the attention's output, and None in the place of its weights; raises InputError for other calls."""
        self._refuse_call(query is key and key is value, query.dim(), need_weights)
        x = query if self.batch_first else query.transpose(0, 1)
        parts = self.in_proj(x).split(self.in_proj.section_sizes, -1)
        q, k, v = (part.reshape(*x.shape[:2], -1, self.head_dim).transpose(1, 2) for part in parts)
        mask = _mask(attn_mask, key_padding_mask, q.dtype)
        causal = is_causal and mask is None
        dropped = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropped, is_causal=causal)
        out = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return (out if self.batch_first else out.transpose(0, 1)), None

    def _refuse_call(self, one: bool, dims: int, need_weights: bool) -> None:
        said = f"layer '{self.in_proj.name}'"
        if not one:
            raise InputError(f"{said}: query, key and value must be one tensor (self-attention)")
        if dims != 3:
            raise InputError(f"{said}: its input has {dims} dimensions: give 3, also for one sample: x[None]")
        if need_weights:
            raise InputError(f"{said}: need_weights=True: a rank has the weights of its own heads only: give False")


def _mask(attn_mask: Tensor | None, padding: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return both masks as one that is added to the scores, for all heads: [B or 1, 1, T or 1, S]."""
    if attn_mask is not None and attn_mask.dim() > 2:
        raise InputError("MultiheadAttention: attn_mask: a mask per head cannot move with the heads: give [T, S]")
    masks = [attn_mask if attn_mask is None else attn_mask[None, None]]
    masks.append(padding if padding is None else padding[:, None, None])
    added = [_added(mask, dtype) for mask in masks if mask is not None]
    return None if not added else added[0] if len(added) == 1 else added[0] + added[1]


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask to add: -inf where a boolean one is True."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -torch.inf)
