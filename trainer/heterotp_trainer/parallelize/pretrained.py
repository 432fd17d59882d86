"""Weights of a cut model from and to directories of safetensors files, as transformers writes and reads them.

| call            | every rank                                                     | rank 0                          |
|-----------------|----------------------------------------------------------------|---------------------------------|
| load_pretrained | reads its units of each tensor, and whole replicated tensors   | -                               |
| save_pretrained | sends its units of one tensor after another                    | writes whole tensors and config |

Storage may be slow: files are read and written by threads, and ranks wait by short messages (checkpoint/storage.py).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from heterotp_api.formatting import listed
from safetensors import SafetensorError
from torch import Tensor, nn

from heterotp_trainer.checkpoint.errors import WriteError
from heterotp_trainer.checkpoint.storage import Storage, done_by_all
from heterotp_trainer.checkpoint.stream import assemble
from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.buffers import compute_buffers, refuse_buffers_without_values
from heterotp_trainer.parallelize.checkpoint_names import model_names
from heterotp_trainer.parallelize.initial import drawn
from heterotp_trainer.parallelize.replace import Shards, holders, put, shards_of, whole_shape, with_marks
from heterotp_trainer.parallelize.roles import Layout
from heterotp_trainer.parallelize.weight_files import TensorFiles, WeightFiles, copy_settings
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, shard_spec

MOST_NAMED = 5
INTEGERS = ("I", "U", "BOOL")  # types of safetensors begin so; others are F32, BF16, F8_E4M3, ...


def initialize(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every parameter without values those that the model's own initialization draws; return the model.

    The values depend on the seed, the parameter's name and the unit, not on which rank owns it. Raises InputError for
    an initialization that cannot be repeated on shards.
    """
    shards = shards_of(model)
    names = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    values = {name: _drawn(model, shards, name, seed) for name in names}  # all of them, before anything is changed
    fill(model, shards, values)
    return model


def load_pretrained(model: nn.Module, path: str | Path, *, strict: bool = True, seed: int = 0) -> nn.Module:
    """Fill a parallelized model from a directory (or file) of safetensors, each rank with its units; return the model.

    All ranks call it: each returns when all have read theirs, however long that takes. strict: raise InputError where
    tensors are missing or left over, naming them; else missing parameters are drawn as by `initialize` with this seed,
    and what is left over is not read. Nothing is changed where it raises; where it does so on one rank, it does on all.
    """
    shards = shards_of(model)
    tp, read = shards.tp, partial(_stored, model, shards, Path(path), strict)
    with tp.where.busy("the model is read"):
        values, missing, folder = done_by_all(read, tp.ranks, tp.control_group, tp.timeout_seconds)
        values |= {name: _drawn(model, shards, name, seed) for name in missing}
        fill(model, shards, values)
    shards.source = str(folder)
    return model


def _stored(model: nn.Module, shards: Shards, path: Path, strict: bool) -> tuple[dict[str, Tensor], list[str], Path]:
    """Return this rank's part of what is stored, the parameters that are missing there, and the directory."""
    source = WeightFiles(path)
    names = model_names(model, source.names)
    missing = _check(model, shards, source, names, strict)
    try:
        values = {name: _read_alike(model, shards, source, each, name) for name, each in names.items()}
    except (OSError, SafetensorError) as error:
        raise InputError(f"load_pretrained: {source.folder}: {error}") from None
    return values, missing, source.folder


def _check(
    model: nn.Module, shards: Shards, source: WeightFiles, names: Mapping[str, Sequence[str]], strict: bool
) -> list[str]:
    """Return the parameters that are missing; raise InputError for names, shapes and types that do not fit."""
    targets = _targets(model)
    missing = [name for name in targets if name not in names]
    surplus = sorted(set(source.names) - set(chain(*names.values())) - _ignored(model, source.names))
    wrong = []
    for name, stored in [(name, each) for name, several in names.items() for each in several]:
        wanted, found = whole_shape(targets[name], shards.layouts.get(name)), source.names[stored][1]
        if wanted != found:
            wrong.append(f"{stored} is {list(found)}, the model has {list(wanted)}")
        elif targets[name].is_floating_point() and source.types[stored].startswith(INTEGERS):
            wrong.append(f"{stored} holds integers ({source.types[stored]}), the model has floating-point numbers")
    said = f"load_pretrained: {source.folder}: "
    if wrong:
        raise InputError(said + listed(wrong, MOST_NAMED))
    if strict and (missing or surplus):
        parts = [f"missing: {listed(missing, MOST_NAMED)}"] * bool(missing)
        parts += [f"surplus: {listed(surplus, MOST_NAMED)}"] * bool(surplus)
        raise InputError(
            said + "; ".join(parts) + "; in a loop of your own, strict=False draws what is missing and skips the rest"
        )
    return [name for name in missing if name in dict(model.named_parameters())]


def _targets(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and persistent buffers by name; a tied parameter once."""
    kept = model.state_dict(keep_vars=True)
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in kept}
    return {**dict(model.named_parameters()), **buffers}


def _ignored(model: nn.Module, names: Mapping[str, object]) -> set[str]:
    """Return the stored names that a model of transformers leaves unread, as old buffers."""
    import re

    patterns = list(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ())
    own = set(model.state_dict(keep_vars=True))
    return {name for name in names if name in own or any(re.search(pattern, name) for pattern in patterns)}


def _read_alike(model: nn.Module, shards: Shards, source: WeightFiles, stored: Sequence[str], name: str) -> Tensor:
    """Return this rank's part of a tensor that is stored under each of these names, with the same values."""
    value = _read(model, shards, source, stored[0], name)
    for other in stored[1:]:
        if not torch.equal(_read(model, shards, source, other, name), value):
            raise InputError(
                f"load_pretrained: {stored[0]} and {other} differ, but the model has one parameter for both: make it "
                "with one for each, in a config of transformers by tie_word_embeddings=False"
            )
    return value


def _read(model: nn.Module, shards: Shards, source: WeightFiles, stored: str, name: str) -> Tensor:
    """Return this rank's part of a stored tensor, one unit after another, as a copy: nothing of the file stays open."""
    spec = shard_spec(_targets(model)[name])
    with source.opened(stored) as file:
        if spec is None:
            value: Tensor = file.get_tensor(stored)
            return value.clone()
        owned = shards.tp.unit_plan.ranges(spec.family, shards.tp.rank)
        return read_units(file.get_slice(stored), spec, shards.layouts.get(name, Layout()), owned)


def read_units(piece: Any, spec: ShardSpec, layout: Layout, ranges: tuple[tuple[int, int], ...]) -> Tensor:
    """Return the units of these ranges from a slice of a stored whole tensor, one unit after another."""
    rows = spec.rows_per_unit // layout.sections
    shape = list(piece.get_shape())
    transposed = layout.transposed and len(shape) == 2
    dim = 1 - spec.dim if transposed else spec.dim
    whole = spec.total_units * rows
    parts = []
    for start, stop in ranges or ((0, 0),):
        sections = [
            _taken(piece, dim, s * whole + start * rows, s * whole + stop * rows) for s in range(layout.sections)
        ]
        turned = [each.t() if transposed else each for each in sections]
        if layout.sections > 1:
            turned = [each.reshape(stop - start, rows, *each.shape[1:]) for each in turned]
            joined = torch.cat(turned, 1)
            turned = [joined.reshape(-1, *joined.shape[2:]) if stop > start else joined.flatten(0, 1)]
        parts.append(turned[0])
    return torch.cat(parts, spec.dim).contiguous()


def _taken(piece: Any, dim: int, start: int, stop: int) -> Tensor:
    taken: Tensor = piece[start:stop] if dim == 0 else piece[:, start:stop]
    return taken


def _drawn(model: nn.Module, shards: Shards, name: str, seed: int) -> Tensor:
    parameter = model.get_parameter(name)
    spec = shard_spec(parameter)
    owned = () if spec is None else shards.tp.owned(spec.family)
    if name not in shards.recipes:
        raise InputError(f"initialize: {name}: it had values when the model was parallelized: it can only be loaded")
    return drawn(name, shards.recipes[name], seed, parameter.dtype, spec, shards.layouts.get(name), owned)


def fill(model: nn.Module, shards: Shards, values: Mapping[str, Tensor]) -> None:
    """Put values into parameters and buffers, on the session's device; non-persistent buffers are computed again.

    Raises InputError, before anything is changed, for a buffer that would stay without values.
    """
    refuse_buffers_without_values(model, values)
    device = shards.tp.device.torch_device
    places = holders(model)
    buffers = dict(model.named_buffers())
    for name, value in values.items():
        if name not in places:
            _put_buffer(model, name, buffers[name], value, device)
            continue
        parameter = model.get_parameter(name)
        held = value.to(device, parameter.dtype)
        if parameter.is_meta:
            put(places[name], with_marks(nn.Parameter(held, requires_grad=parameter.requires_grad), parameter))
        else:
            parameter.data.copy_(held)
    compute_buffers(model, device)


def _put_buffer(model: nn.Module, name: str, buffer: Tensor, value: Tensor, device: torch.device) -> None:
    parent, _, child = name.rpartition(".")
    model.get_submodule(parent)._buffers[child] = value.to(device, buffer.dtype)


def save_pretrained(model: nn.Module, path: str | Path) -> None:
    """Write whole tensors, config and tokenizer files so that `from_pretrained` loads the directory (all ranks).

    Tensors are gathered one at a time and have the type that they were made or loaded with. Raises WriteError on all
    ranks when the directory cannot be written.
    """
    shards, folder = shards_of(model), Path(path)
    tp = shards.tp
    storage = Storage(tp.rank, tp.control_group, tp.timeout_seconds, alone=tp.ranks == 1)
    try:
        with tp.where.busy("the model is written"):
            _save(model, shards, folder, storage)
    finally:
        storage.close()


def _save(model: nn.Module, shards: Shards, folder: Path, storage: Storage) -> None:
    """Send all tensors to rank 0, whose thread writes them meanwhile (all ranks)."""
    writer = storage.wait(partial(_opened, folder)).own
    for name, tensor in _targets(model).items():
        spec, held = shard_spec(tensor), tensor.detach()
        whole = held.cpu() if spec is None else assemble(held, spec, shards.tp)  # here: a device is used by one thread
        if writer is not None and whole is not None:
            storage.later(partial(_add, writer, shards, folder, name, whole, spec))
        shape = held.shape if spec is None else spec.full_shape(held.shape)
        storage.pace(math.prod(shape) * held.element_size())
    storage.wait(partial(_close, writer, model, shards, folder))


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Raise errors of the disk as WriteError, which ends all ranks with this line."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        said = getattr(error, "strerror", None) or error
        raise WriteError(f"save_pretrained: {folder} cannot be written: {said}") from None


def _opened(folder: Path) -> TensorFiles:
    with _writing(folder):
        return TensorFiles(folder)


def _add(writer: TensorFiles, shards: Shards, folder: Path, name: str, whole: Tensor, spec: ShardSpec | None) -> None:
    """Write a whole tensor as the plain model holds it."""
    if spec is not None:
        whole = shards.layouts.get(name, Layout()).of_model(whole, spec)
    with _writing(folder):
        writer.add(name, whole.to(shards.dtypes.get(name, whole.dtype)))


def _close(writer: TensorFiles | None, model: nn.Module, shards: Shards, folder: Path) -> None:
    assert writer is not None  # rank 0 closes
    with _writing(folder):
        writer.close()
        _write_settings(model, shards, folder)


def _write_settings(model: Any, shards: Shards, folder: Path) -> None:
    """Copy what belongs to the weights from where they came, and write the config of the model as it is."""
    if shards.source is not None and Path(shards.source).resolve() != folder.resolve():
        copy_settings(Path(shards.source), folder)
    config: Any = getattr(model, "config", None)
    if hasattr(config, "save_pretrained"):
        config.architectures = [type(model).__name__]
        config.save_pretrained(folder)
    generation: Any = getattr(model, "generation_config", None)
    if hasattr(generation, "save_pretrained") and model.can_generate():
        generation.save_pretrained(folder)
