"""What `inject` and `policy` ask for: from options to names, objects and settings, or what is wrong with them. Pure."""

import hashlib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, get_args

import yaml
from heterotp_api.injection import StragglerInjection, Targets
from heterotp_api.load import ManifestError, first_error, parse_object
from heterotp_api.names import API_VERSION
from heterotp_api.policy import BalancingSettings, Strategy, policy_problem
from heterotp_api.ranks import RankPlace
from heterotp_api.targets import resolve
from pydantic import ValidationError

from heterotp_cli.errors import BadInput
from heterotp_cli.verbs.formatting import duration, parse_duration, ranks_text

CREATED_BY = {"app.kubernetes.io/created-by": "kubectl-heterotp"}
MOST_NAME = 253
STRATEGY, LIMIT = "strategy", "maxPrunedShare"
# how people gave what an error names; longer paths first
OPTIONS = {
    "spec.targets.ranks": "--rank",
    "spec.targets.workerGroups": "--group",
    "spec.targets.nodes": "--node",
    "spec.slowdown": "--chi",
    "spec.mode": "--mode",
    "spec.stop": "--for",
}


@dataclass(frozen=True)
class Aim:
    """Whom an injection strikes: one of the three."""

    ranks: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ranks or self.groups or self.nodes)

    def targets(self) -> dict[str, Any]:
        """Return the targets of a StragglerInjection."""
        given = {"ranks": list(self.ranks), "workerGroups": list(self.groups), "nodes": list(self.nodes)}
        return {kind: which for kind, which in given.items() if which}

    def options(self) -> str:
        """Return the options that name it again."""
        given = [("--rank", self.ranks), ("--group", self.groups), ("--node", self.nodes)]
        return " ".join(f"{option} {value}" for option, values in given for value in values)

    def words(self) -> str:
        """Return it as people say it."""
        if self.ranks:
            return ranks_text(self.ranks)
        kind, which = ("group", self.groups) if self.groups else ("node", self.nodes)
        return f"{kind}{'s' if len(which) > 1 else ''} {', '.join(which)}"


def aim(ranks: Sequence[int], groups: Sequence[str], nodes: Sequence[str]) -> Aim:
    """Return whom the options name, each once and in order, so that the same ones make the same name."""
    found = Aim(*(tuple(sorted(set(given))) for given in (ranks, groups, nodes)))  # type: ignore[arg-type,type-var]
    if sum(map(bool, (found.ranks, found.groups, found.nodes))) > 1:
        raise BadInput(f"{found.options()}: give one kind of --rank, --group and --node")
    return found


def injection_name(job: str, aimed: Aim) -> str:
    """Return the name that these targets of this job always have, one that an API server takes."""
    kind, which = next(
        (kind, which)
        for kind, which in (("rank", aimed.ranks), ("group", aimed.groups), ("node", aimed.nodes))
        if which
    )
    words = "-".join([job, kind + ("s" if len(which) > 1 else ""), *map(str, which)])
    name = re.sub(r"[^a-z0-9.-]", "-", words.lower()).strip("-.")
    if len(name) <= MOST_NAME:
        return name
    mark = hashlib.blake2b(words.encode(), digest_size=4).hexdigest()
    return f"{name[: MOST_NAME - 1 - len(mark)].rstrip('-.')}-{mark}"


@dataclass(frozen=True)
class Slow:
    """How much slower, for how long (None: until it is taken back) and by what means (None: by device)."""

    chi: float
    seconds: float | None = None
    mode: str | None = None

    def words(self) -> str:
        """Return it as people say it."""
        how = f" (mode {self.mode})" if self.mode else ""
        until = f"for {duration(self.seconds)}" if self.seconds is not None else "until it is taken back"
        return f"{self.chi:g}x{how}, {until}"


def slow(chi: float | None, length: str | None, mode: str | None) -> Slow:
    """Return what the options ask for."""
    if chi is None:
        raise BadInput("--chi: is required, e.g. --chi 4 for four times slower; --off takes an injection back")
    try:
        seconds = parse_duration(length) if length is not None else None
    except ValueError as error:
        raise BadInput(f"--for: '{length}' {error}") from None
    return Slow(chi, seconds, mode)


def injection(job: str, namespace: str, aimed: Aim, how: Slow) -> StragglerInjection:
    """Return the object to send; raise BadInput naming the option where the models refuse it."""
    if not aimed:
        raise BadInput("--rank: is required, e.g. --rank 3 or --group NAME")
    spec: dict[str, Any] = {"jobRef": {"name": job}, "targets": aimed.targets(), "slowdown": how.chi}
    if how.mode is not None:
        spec["mode"] = how.mode
    if how.seconds is not None:
        spec["stop"] = {"seconds": how.seconds}
    metadata = {"name": injection_name(job, aimed), "namespace": namespace, "labels": CREATED_BY}
    try:
        made = parse_object(
            {"apiVersion": API_VERSION, "kind": "StragglerInjection", "metadata": metadata, "spec": spec}
        )
    except ManifestError as error:
        _refuse(error.field, error.value, error.message)
    assert isinstance(made, StragglerInjection)
    return made


def _refuse(field: str, value: object, message: str) -> NoReturn:
    option = next((option for path, option in OPTIONS.items() if field.startswith(path)), field)
    raise BadInput(f"{option}:{'' if value is None else f' {value!r}'} {message}")


def struck(targets: Targets, places: Sequence[RankPlace], nodes: Mapping[int, str] | None) -> list[int]:
    """Return the ranks that targets name in a job; raise BadInput naming the option for what the job does not have."""
    try:
        return resolve(targets, places, nodes)
    except ValueError as error:
        field, _, words = str(error).partition(": ")
        raise BadInput(f"{OPTIONS.get(field, field)}: {words}") from None


def nothing_made(aimed: Aim) -> str:
    """Return what to say where there is nothing to take back."""
    return (
        f"--off: no injection{f' of {aimed.words()}' if aimed else ''} was made by this command: nothing to take back"
    )


# -- policy ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wish:
    """A policy as it was asked for: what was given, to be sent, and the whole settings that it makes."""

    given: dict[str, Any]
    settings: BalancingSettings

    def words(self) -> str:
        """Return it as people say it."""
        more = [f"{path} {_shown(value)}" for path, value in _leaves(self.given) if path != STRATEGY]
        return f"{self.settings.strategy}{' (' + ', '.join(more) + ')' if more else ''}"


def wish(strategy: str, max_pruned_share: float | None, sets: Sequence[str], ranks: int | None) -> Wish:
    """Return the policy that the options ask for; raise BadInput naming the option where a job cannot have it.

    ranks: how many the job has, None where that is not known.
    """
    given: dict[str, Any] = {STRATEGY: _strategy(strategy)}
    if max_pruned_share is not None:
        given[LIMIT] = max_pruned_share
    for each in sets:
        _set(given, each)
    try:
        settings = BalancingSettings.model_validate(given)
    except ValidationError as error:
        field, value, message = first_error(error)
        raise BadInput(f"{_policy_option(field, sets)}:{'' if value is None else f' {value!r}'} {message}") from None
    problem = policy_problem(settings, ranks) if ranks is not None else None
    if problem is not None:
        raise BadInput(f"--set {problem}")
    return Wish(given, settings)


def options_of(settings: BalancingSettings) -> str:
    """Return the options that ask for these settings again."""
    given = settings.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    sets = [shlex.quote(f"{path}={_shown(value)}") for path, value in _leaves(given) if path != STRATEGY]
    return " ".join([f"--strategy {settings.strategy}", *(f"--set {each}" for each in sets)])


def _strategy(text: str) -> str:
    """Return the strategy's own spelling, so that --strategy semi will do."""
    return next((name for name in get_args(Strategy) if name.lower() == text.lower()), text)


def _policy_option(field: str, sets: Sequence[str]) -> str:
    if field == STRATEGY:
        return "--strategy"
    if field == LIMIT and not any(each.partition("=")[0] == LIMIT for each in sets):
        return "--max-pruned-share"
    return f"--set {field}" if field else "--set"


def _set(given: dict[str, Any], assignment: str) -> None:
    """Put one KEY=VALUE where its dots lead."""
    path, equals, text = assignment.partition("=")
    parts = path.split(".")
    if not equals or not all(parts):
        raise BadInput(f"--set: '{assignment}' must be KEY=VALUE, e.g. window=10 or zero.selection=Rd")
    if path == STRATEGY:
        raise BadInput(f"--set strategy: '{text}' is what --strategy is for")
    block = given
    for part in parts[:-1]:
        block = block.setdefault(part, {})
        if not isinstance(block, dict):
            raise BadInput(f"--set {path}: '{text}' lies below a value that was given, too: give one of them")
    if parts[-1] in block:
        raise BadInput(f"--set {path}: '{text}' was given before: give it once")
    block[parts[-1]] = _value(path, text)


def _value(path: str, text: str) -> Any:
    """Return what YAML makes of a text; 1e-3 is a number, as it is to kubectl."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise BadInput(f"--set {path}: '{text}' is not YAML") from None
    if isinstance(value, str) and re.fullmatch(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+", value):
        value = float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"--set {path}: {text} must be a finite number")
    return value


def _leaves(given: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in given.items():
        path = f"{above}{key}"
        found += _leaves(value, f"{path}.") if isinstance(value, dict) else [(path, value)]
    return found


def _shown(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()
