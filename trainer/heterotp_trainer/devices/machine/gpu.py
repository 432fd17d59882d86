"""What NVML says of one GPU (package nvidia-ml-py, optional): nothing where the library, driver or GPU is absent."""

import importlib
import os
from collections.abc import Callable
from typing import Any

from heterotp_trainer.devices.machine.reading import GpuState

POWER = ("SwPowerCap", "HwPowerBrakeSlowdown")  # reasons of lower clocks, as NVML names them
THERMAL = ("SwThermalSlowdown", "HwThermalSlowdown")
PREFIX = "nvmlClocksThrottleReason"  # ClocksEventReason in newer versions, which keep this name


def nvml() -> Any | None:
    """Return the library, initialised; None: it is absent, or there is no driver."""
    try:
        library = importlib.import_module("pynvml")
        library.nvmlInit()
    except Exception:  # whatever a driver of another version raises
        return None
    return library


class Gpu:
    """One GPU by its UUID; empty: of a rank without one."""

    def __init__(self, uuid: str, library: Callable[[], Any | None] = nvml) -> None:
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        self._nvml: Any = library() if uuid else None
        self._handle = _asked(lambda: self._nvml.nvmlDeviceGetHandleByUUID(name))

    def state(self) -> GpuState:
        """Return the state of now; what the GPU does not answer is not known."""
        library, handle = self._nvml, self._handle
        if handle is None:
            return GpuState()
        why = _asked(lambda: library.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        processes = _asked(lambda: library.nvmlDeviceGetComputeRunningProcesses(handle))
        kind, counter = (
            getattr(library, name, 1) for name in ("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC")
        )
        return GpuState(
            power=_has(library, why, POWER),
            thermal=_has(library, why, THERMAL),
            others=None if processes is None else _others([each.pid for each in processes], os.getpid()),
            errors=_asked(lambda: int(library.nvmlDeviceGetTotalEccErrors(handle, kind, counter))),
        )


def _others(pids: list[int], own: int) -> int:
    """Return how many other processes there are; in a container pids are those of the node, and one is this process."""
    return len([pid for pid in pids if pid != own]) if own in pids else max(len(pids) - 1, 0)


def _has(library: Any, why: int | None, names: tuple[str, ...]) -> bool | None:
    bits = (getattr(library, PREFIX + name, 0) for name in names)
    return None if why is None else any(why & bit for bit in bits)


def _asked(ask: Callable[[], Any]) -> Any | None:
    try:
        return ask()
    except Exception:  # NVMLError of a question that this GPU or driver does not answer
        return None
