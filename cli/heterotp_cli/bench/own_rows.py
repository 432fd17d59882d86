"""Policies and models of the user, as further rows of a bench."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import yaml
from heterotp_api.base import Model, Rule
from heterotp_api.load import ManifestError, first_error, load_manifest
from heterotp_api.policy import BalancingPolicy, policy_problem
from pydantic import Field, ValidationError

from heterotp_cli.bench.emulation import MODELS, RANKS, SCALE, PaperModel
from heterotp_cli.bench.scenarios import Size
from heterotp_cli.errors import BadInput


class OwnModel(Model):
    """A model to emulate: its sizes, and what an iteration takes on the machine that is emulated."""

    name: str = Field(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)
    width: int = Field(ge=SCALE, le=1 << 16)
    heads: int = Field(ge=1, le=1024)
    rows: int = Field(ge=SCALE, le=1 << 24, description="Images, or sequences, times tokens of a batch.")
    iteration_seconds: float = Field(gt=0, le=3600, description="Of equal ranks.")
    matmul_share: float = Field(gt=0, lt=1, description="Share of an iteration in prunable products.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(f"width must be a multiple of {SCALE} and of heads", None, lambda m: _fits(m.width, m.heads), "width"),
        Rule("is a model of the paper: take another name", None, lambda m: m.name not in MODELS, "name"),
    )


def _fits(width: int, heads: int) -> bool:
    return width % SCALE == 0 and (width // SCALE) % heads == 0


def with_own_rows(size: Size, policies: Sequence[Path], models: Sequence[Path]) -> Size:
    """Return the size with further policies and models; raise BadInput naming file, field and value."""
    if not policies and not models:
        return size
    named = tuple(pair for path in policies for pair in _policies(path))
    twice = next((name for name, _ in named if sum(each == name for each, _ in named) > 1), None)
    if twice is not None:
        raise BadInput(f"--policy: two policies have the name '{twice}': rename one")
    return replace(size, policies=named, models=(*size.models, *map(_model, models)))


def _policies(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return name and settings of each BalancingPolicy in a file."""
    try:
        found = [each for each in load_manifest(path) if isinstance(each, BalancingPolicy)]
    except (ManifestError, OSError) as error:
        raise BadInput(f"--policy: {error}") from None
    if not found:
        raise BadInput(f"--policy: {path}: holds no BalancingPolicy")
    for each in found:
        problem = policy_problem(each.spec.settings, RANKS)
        if problem is not None:
            raise BadInput(f"--policy: {path}: spec.{problem}")
    return [(each.metadata.name, each.spec.settings.dump()) for each in found]


def _model(path: Path) -> PaperModel:
    """Return the model that a file describes."""
    try:
        own = OwnModel.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as error:
        raise BadInput(f"--model: {path}: cannot be read: {error}") from None
    except ValidationError as error:
        field, value, message = first_error(error, OwnModel)
        raise BadInput(f"--model: {path}: {field}: {value!r}: {message}") from None
    return PaperModel(own.name, own.width, own.heads, own.rows, own.iteration_seconds, own.matmul_share)
