"""What a torch function is, as `__torch_function__` receives it."""

from collections.abc import Callable
from typing import Any

# functions and attributes that tell of a tensor and compute nothing
_FACTS = (
    "size dim ndimension numel nelement stride is_contiguous is_floating_point is_complex element_size get_device "
    "__len__ has_names is_inference is_nested is_sparse is_quantized is_meta is_cuda is_cpu layout shape ndim dtype "
    "device names"
)
FACTS = frozenset(_FACTS.split())


def name_of(func: Callable[..., Any]) -> str:
    """Return the name of a function, or of the attribute whose getter it is."""
    name = getattr(func, "__name__", "")
    return str(getattr(getattr(func, "__self__", None), "__name__", name) if name == "__get__" else name)
