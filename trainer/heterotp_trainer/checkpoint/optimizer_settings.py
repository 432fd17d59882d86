"""What an optimizer holds beside tensors: the settings of its parameter groups, and plain numbers of its state."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from heterotp_trainer.errors import InputError

Named = Mapping[str, nn.Parameter]
OF_THE_MACHINE = {"foreach", "fused", "capturable", "differentiable"}  # how a step is computed, not what


def settings_of(optimizer: torch.optim.Optimizer, parameters: Named) -> dict[str, Any]:
    """Return the settings of each group with the names of its parameters, and the state that is no tensor."""
    names = {parameter: name for name, parameter in parameters.items()}
    groups = [
        {"names": [names.get(p, "") for p in group["params"]], "settings": _settings(group)}
        for group in optimizer.param_groups
    ]
    values = {
        name: found
        for name, parameter in parameters.items()
        if (found := {k: v for k, v in optimizer.state.get(parameter, {}).items() if not isinstance(v, Tensor)})
    }
    return {"groups": groups, "values": values}


def resume_settings(optimizer: torch.optim.Optimizer, parameters: Named, held: dict[str, Any]) -> list[str]:
    """Give the optimizer these settings; return the names of those that were set otherwise before.

    Raises ValueError where its groups are of other parameters.
    """
    now = settings_of(optimizer, parameters)["groups"]
    _check_groups([group["names"] for group in held["groups"]], [group["names"] for group in now])
    changed: set[str] = set()
    for group, before, then in zip(optimizer.param_groups, now, held["groups"], strict=True):
        for key, value in then["settings"].items():
            if not _equal(before["settings"].get(key), value):
                changed.add(key)
            group[key] = _placed(value, group.get(key))
        _place_steps(optimizer, group)
    for name, values in held["values"].items():
        optimizer.state[parameters[name]].update(values)
    return sorted(changed)


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params" and key not in OF_THE_MACHINE}


def _check_groups(held: Sequence[Sequence[str]], now: Sequence[Sequence[str]]) -> None:
    if len(held) != len(now):
        raise InputError(f"optimizer: {len(held)} parameter groups in the checkpoint, {len(now)} in this optimizer")
    for number, (then, here) in enumerate(zip(held, now, strict=True)):
        other = sorted({*then} ^ {*here})
        if other:
            raise InputError(
                f"optimizer: parameter group {number} has other parameters than in the checkpoint: {other[:3]}"
            )


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and torch.equal(a.cpu(), b.cpu())
    return bool(a == b)


def _placed(value: Any, before: Any) -> Any:
    """Return the value, on the device of the one before where both are tensors."""
    return value.to(before.device) if isinstance(value, Tensor) and isinstance(before, Tensor) else value


def _place_steps(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> None:
    """Move step counters to the parameters' device for kernels that read them there."""
    if not (group.get("fused") or group.get("capturable")):
        return
    for parameter in group["params"]:
        state = optimizer.state.get(parameter, {})
        if isinstance(state.get("step"), Tensor):
            state["step"] = state["step"].to(parameter.device)
