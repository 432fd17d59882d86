"""What `inject` and `policy` request: from options to names, objects and settings; names a wrong option. Pure."""

import hashlib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, get_args

import yaml
from heterotp_api.bounded_yaml import TooMuch, read_documents
from heterotp_api.formatting import listed, one_line, ranks_listed
from heterotp_api.injection import StragglerInjection, Targets
from heterotp_api.load import ManifestError, first_error, parse_object
from heterotp_api.names import API_VERSION
from heterotp_api.policy import BalancingSettings, policy_problem
from heterotp_api.ranks import RankPlace
from heterotp_api.strategies import Strategy
from heterotp_api.targets import TargetError, resolve
from pydantic import ValidationError

from heterotp_cli.errors import BadInput
from heterotp_cli.verbs.formatting import duration, parse_duration

CREATED_BY = {"app.kubernetes.io/created-by": "kubectl-heterotp"}
MOST_NAME = 253  # characters of an object's name
STRATEGY, LIMIT = "strategy", "maxPrunedShare"
# the option that sets a field of a StragglerInjection
OPTIONS = {
    "spec.targets.ranks": "--rank",
    "spec.targets.workerGroups": "--group",
    "spec.targets.nodes": "--node",
    "spec.slowdown": "--chi",
    "spec.mode": "--mode",
    "spec.stop": "--for",
}


@dataclass(frozen=True)
class RankSelector:
    """The ranks that an injection slows, given in one of three ways; an empty selector gives none."""

    ranks: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ranks or self.groups or self.nodes)

    def targets(self) -> dict[str, Any]:
        """Return the targets of a StragglerInjection."""
        given = {"ranks": list(self.ranks), "workerGroups": list(self.groups), "nodes": list(self.nodes)}
        return {kind: names for kind, names in given.items() if names}

    def options(self) -> str:
        """Return the options that make this selector."""
        given = [("--rank", self.ranks), ("--group", self.groups), ("--node", self.nodes)]
        return " ".join(f"{option} {value}" for option, values in given for value in values)

    def description(self) -> str:
        """Return the ranks as part of a sentence."""
        if self.ranks:
            return ranks_listed(self.ranks)
        kind, names = ("group", self.groups) if self.groups else ("node", self.nodes)
        return f"{kind}{'s' if len(names) > 1 else ''} {listed(names)}"


def rank_selector(ranks: Sequence[int], groups: Sequence[str], nodes: Sequence[str]) -> RankSelector:
    """Return the selector of the options' values, sorted and without repeats: equal ranks make equal names.

    Raises BadInput where more than one kind is given.
    """
    found = RankSelector(*(tuple(sorted(set(given))) for given in (ranks, groups, nodes)))  # type: ignore[arg-type,type-var]
    if sum(map(bool, (found.ranks, found.groups, found.nodes))) > 1:
        raise BadInput(f"{found.options()}: give one kind of --rank, --group and --node")
    return found


def injection_name(job: str, selector: RankSelector) -> str:
    """Return the object name of an injection: the same for the same job and ranks, and valid for an API server."""
    kinds = (("rank", selector.ranks), ("group", selector.groups), ("node", selector.nodes))
    kind, names = next((kind, names) for kind, names in kinds if names)
    full = "-".join([job, kind + ("s" if len(names) > 1 else ""), *map(str, names)])
    name = re.sub(r"[^a-z0-9.-]", "-", full.lower()).strip("-.")
    if len(name) <= MOST_NAME:
        return name
    digest = hashlib.blake2b(full.encode(), digest_size=4).hexdigest()
    return f"{name[: MOST_NAME - 1 - len(digest)].rstrip('-.')}-{digest}"


@dataclass(frozen=True)
class SlowdownRequest:
    """A slow-down by the factor chi, for some seconds (None: until it is removed), in a mode (None: by device)."""

    chi: float
    seconds: float | None = None
    mode: str | None = None

    def description(self) -> str:
        """Return the slow-down as part of a sentence."""
        mode = f" (mode {self.mode})" if self.mode else ""
        until = f"for {duration(self.seconds)}" if self.seconds is not None else "until it is taken back"
        return f"{self.chi:g}x{mode}, {until}"


def slowdown_request(chi: float | None, length: str | None, mode: str | None) -> SlowdownRequest:
    """Return the slow-down of the options' values; raise BadInput for a missing chi or a malformed length."""
    if chi is None:
        raise BadInput("--chi: is required, e.g. --chi 4 for four times slower; --off takes an injection back")
    try:
        seconds = parse_duration(length) if length is not None else None
    except ValueError as error:
        raise BadInput(f"--for: '{length}' {error}") from None
    return SlowdownRequest(chi, seconds, mode)


def injection(job: str, namespace: str, selector: RankSelector, slowdown: SlowdownRequest) -> StragglerInjection:
    """Return the object to create; raise BadInput naming the option whose value the models refuse."""
    if not selector:
        raise BadInput("--rank: is required, e.g. --rank 3 or --group NAME")
    spec: dict[str, Any] = {"jobRef": {"name": job}, "targets": selector.targets(), "slowdown": slowdown.chi}
    if slowdown.mode is not None:
        spec["mode"] = slowdown.mode
    if slowdown.seconds is not None:
        spec["stop"] = {"seconds": slowdown.seconds}
    metadata = {"name": injection_name(job, selector), "namespace": namespace, "labels": CREATED_BY}
    body = {"apiVersion": API_VERSION, "kind": "StragglerInjection", "metadata": metadata, "spec": spec}
    try:
        made = parse_object(body)
    except ManifestError as error:
        _refuse(error.field, error.value, error.message)
    assert isinstance(made, StragglerInjection)
    return made


def _refuse(field: str, value: object, message: str) -> NoReturn:
    option = next((option for path, option in OPTIONS.items() if field.startswith(path)), field)
    raise BadInput(f"{option}:{'' if value is None else f' {value!r}'} {message}")


def target_ranks(targets: Targets, places: Sequence[RankPlace], nodes: Mapping[int, str] | None) -> list[int]:
    """Return the ranks of the targets; raise BadInput naming the option for what the job does not have."""
    try:
        return resolve(targets, places, nodes)
    except TargetError as error:
        raise BadInput(f"{OPTIONS.get(error.field, error.field)}: {error.problem}") from None


def no_injection_text(selector: RankSelector) -> str:
    """Return the error where `--off` finds no injection to remove."""
    ranks = f" of {selector.description()}" if selector else ""
    return f"--off: no injection{ranks} was made by this command: nothing to take back"


# -- policy ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PolicyRequest:
    """A requested policy: the fields that were given, and the whole settings that they make."""

    given: dict[str, Any]
    settings: BalancingSettings

    def description(self) -> str:
        """Return the strategy and the other fields that were given."""
        more = [f"{path} {_yaml_text(value)}" for path, value in _leaves(self.given) if path != STRATEGY]
        return f"{self.settings.strategy}{' (' + ', '.join(more) + ')' if more else ''}"


def policy_request(
    strategy: str, max_pruned_share: float | None, sets: Sequence[str], ranks: int | None
) -> PolicyRequest:
    """Return the policy of the options' values; raise BadInput naming the option that a job cannot have.

    ranks: number of ranks of the job, None where it is not known.
    """
    given: dict[str, Any] = {STRATEGY: _strategy(strategy)}
    if max_pruned_share is not None:
        given[LIMIT] = max_pruned_share
    for each in sets:
        _set(given, each)
    try:
        settings = BalancingSettings.model_validate(given)
    except ValidationError as error:
        field, value, message = first_error(error, BalancingSettings)
        raise BadInput(f"{_policy_option(field, sets)}:{'' if value is None else f' {value!r}'} {message}") from None
    problem = policy_problem(settings, ranks) if ranks is not None else None
    if problem is not None:
        raise BadInput(f"--set {problem}")
    return PolicyRequest(given, settings)


def options_of(settings: BalancingSettings) -> str:
    """Return the options of `policy` that request these settings."""
    given = settings.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    sets = [shlex.quote(f"{path}={_yaml_text(value)}") for path, value in _leaves(given) if path != STRATEGY]
    return " ".join([f"--strategy {settings.strategy}", *(f"--set {each}" for each in sets)])


def _strategy(text: str) -> str:
    """Return the strategy in the API's spelling, so that `--strategy semi` is accepted."""
    return next((name for name in get_args(Strategy) if name.lower() == text.lower()), text)


def _policy_option(field: str, sets: Sequence[str]) -> str:
    if field == STRATEGY:
        return "--strategy"
    if field == LIMIT and not any(each.partition("=")[0] == LIMIT for each in sets):
        return "--max-pruned-share"
    return f"--set {field}" if field else "--set"


def _set(given: dict[str, Any], assignment: str) -> None:
    """Put the value of one KEY=VALUE at its dotted path."""
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
    """Return the YAML value of a text; 1e-3 is a number, as for kubectl."""
    try:
        documents = read_documents(text)
    except (yaml.YAMLError, TooMuch):
        raise BadInput(f"--set {path}: {one_line(repr(text), 60)} is not YAML") from None
    value = documents[0] if len(documents) == 1 else None
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"--set {path}: {text} must be a finite number")
    return value


def _leaves(given: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """Return dotted path and value of every value that is no mapping."""
    found: list[tuple[str, Any]] = []
    for key, value in given.items():
        path = f"{above}{key}"
        found += _leaves(value, f"{path}.") if isinstance(value, dict) else [(path, value)]
    return found


def _yaml_text(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()
