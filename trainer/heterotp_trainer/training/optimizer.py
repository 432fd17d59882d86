"""The optimizer of the built-in trainers."""

import inspect
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import Any

import torch
from heterotp_api.training import ParameterGroup, Training
from torch import nn

from heterotp_trainer.errors import InputError

BETAS, EPS = (0.9, 0.999), 1e-8


class EagerAdamW(torch.optim.AdamW):
    """AdamW without torch's wrappers that disable its compiler: they import it, which takes seconds in every rank."""

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def adamw(
    parameters: Iterable[nn.Parameter] | Iterable[tuple[str, nn.Parameter]],
    training: Training,
    embeddings: Collection[nn.Parameter] = (),
) -> EagerAdamW:
    """Return AdamW; vectors (biases, norms) do not decay, nor embeddings where decayEmbeddings is false.

    parameters: with their names where the training has parameter groups; those that a group names follow its settings
    instead. Raises InputError for a pattern that matches none.
    """
    spared = {id(parameter) for parameter in embeddings} if training.decay_embeddings is False else set()
    chosen = training.parameter_groups or []
    usual: tuple[list[nn.Parameter], list[nn.Parameter]] = [], []
    special: list[list[list[nn.Parameter]]] = [[[], []] for _ in chosen]
    matched: set[int] = set()
    for each in parameters:
        name, parameter = each if isinstance(each, tuple) else ("", each)
        found = [place for place, group in enumerate(chosen) if fnmatchcase(name, group.names)]
        matched.update(found[:1])
        spares = parameter.dim() < 2 or id(parameter) in spared
        (special[found[0]] if found else usual)[spares].append(parameter)
    _refuse_unmatched(chosen, matched)
    groups = [_settings(training, None, kept, spares) for spares, kept in enumerate(usual)]
    for group, parts in zip(chosen, special, strict=True):
        groups += [_settings(training, group, kept, spares) for spares, kept in enumerate(parts) if kept]
    first, second = training.betas or BETAS
    return EagerAdamW(groups, lr=training.learning_rate, betas=(first, second), eps=training.eps or EPS)


def _settings(
    training: Training, group: ParameterGroup | None, kept: list[nn.Parameter], spares: int
) -> dict[str, Any]:
    """Return one of torch's parameter groups; spares: 1 for parameters that do not decay by themselves."""
    decay = 0.0 if spares else training.weight_decay
    if group is None:
        return {"params": kept, "weight_decay": decay}
    given, factor = group.weight_decay, group.learning_rate_factor
    return {
        "params": kept,
        "weight_decay": decay if given is None else given,
        "factor": 1.0 if factor is None else factor,
    }


def _refuse_unmatched(chosen: list[ParameterGroup], matched: set[int]) -> None:
    for place, group in enumerate(chosen):
        if place not in matched:
            where = f"spec.training.parameterGroups[{place}].names"
            raise InputError(
                f"{where}: '{group.names}' matches no parameter, or only ones that an earlier group names: "
                "use names of the model's state_dict, e.g. '*norm*' or 'head.*'"
            )
