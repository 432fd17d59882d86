"""What torch does beneath Python: memory of temporaries, and reads by the host."""

import weakref

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Temporaries(TorchDispatchMode):
    """Counts the bytes of tensors that are made and alive at once, without views of `own`; most: the peak."""

    def __init__(self, own):
        super().__init__()
        self._own, self._live, self.most = own.untyped_storage().data_ptr(), 0, 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        made = function(*arguments, **(named or {}))
        new = isinstance(made, Tensor) and all(made is not each for each in arguments)
        if new and made.untyped_storage().data_ptr() != self._own:
            self._live += made.nbytes
            self.most = max(self.most, self._live)
            weakref.finalize(made, self._gone, made.nbytes)
        return made

    def _gone(self, nbytes):
        self._live -= nbytes


class HostReads(TorchDispatchMode):
    """Counts how often the host reads a value, for which it waits for an accelerator."""

    count = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        self.count += "_local_scalar_dense" in str(function)
        return function(*arguments, **(named or {}))
