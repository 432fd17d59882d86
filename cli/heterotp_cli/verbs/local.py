"""The verbs on a run directory: status.json tells, control.json is edited."""

import fcntl
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from heterotp_api.control import LOSSLESS_AUTO, ControlDocument, ControlInjection, control_injection
from heterotp_api.load import first_error
from heterotp_api.names import CONTROL_FILE
from heterotp_api.policy import BalancingSettings
from heterotp_api.ranks import RankPlace
from pydantic import ValidationError

from heterotp_cli import workdir
from heterotp_cli.errors import BadInput, Failed
from heterotp_cli.follow import read_status
from heterotp_cli.verbs import change_requests as orders
from heterotp_cli.verbs import change_status as standing
from heterotp_cli.verbs.change_requests import Aim, Slow
from heterotp_cli.verbs.target import Change, Standing
from heterotp_cli.verbs.view import JobView, of_run, places_of

RUNS = Path("runs")  # where `heterotp run` puts them
MARK = "inject/"  # how the uid of an injection begins that the command line made
NAMED = 5
Edit = Callable[[ControlDocument, int], dict[str, Any]]  # from the document and its next generation to what changes


def open_run(name: str | None) -> "LocalTarget":
    """Return the target of a run directory, or of ./runs where none is named; a job's name means ./runs/NAME."""
    if name is None:
        return LocalTarget(None, "")
    place = Path(name)
    if name and not place.is_dir() and (RUNS / name).is_dir():
        place = RUNS / name
    if not name or workdir.read_json(place / workdir.RUN) is None:
        why = "holds no run" if place.is_dir() and name else "there is no such directory"
        raise BadInput(f"RUN_DIR: '{name}': {why}: name the directory of a `heterotp run`{_there_are()}")
    return LocalTarget(place, name)


def run_directories() -> list[Path]:
    """Return the run directories below ./runs."""
    return sorted(path.parent for path in RUNS.glob(f"*/{workdir.RUN}"))


def _there_are() -> str:
    found = [str(path) for path in run_directories()]
    more = ", ..." if len(found) > NAMED else ""
    return f"; there are {', '.join(found[:NAMED])}{more}" if found else ""


@dataclass(frozen=True)
class LocalTarget:
    """One run directory; `name` is what the user called it."""

    place: Path | None
    name: str

    def look(self) -> JobView:
        """Return the run as its last status tells."""
        return look(self._directory)

    def jobs(self) -> list[JobView]:
        """Return all runs below ./runs."""
        return [look(path) for path in run_directories()]

    def where(self) -> str:
        """Return where `jobs` looks."""
        return f"below ./{RUNS}"

    def command(self, verb: str) -> str:
        """Return what to type for another verb on this run."""
        return f"heterotp {verb} {shlex.quote(self.name)}"

    def inject(self, aimed: Aim, how: Slow) -> Change:
        """List an injection in the control document, in the place of one with the same targets."""
        view = self._live()
        made = orders.injection(view.name, "default", aimed, how)
        if aimed.groups and not _groups(self._directory):
            raise BadInput(
                f"--group: '{aimed.groups[0]}': the run does not say its groups, an older version made it: use --rank"
            )
        ranks = orders.struck(made.spec.targets, self._places(view), None)
        name = made.metadata.name

        def listed(document: ControlDocument, generation: int) -> dict[str, Any]:
            uid = f"{MARK}{name}/{generation}"  # a new one each time: its age begins anew
            others = [each for each in document.injections if not _ours(each, name)]
            return {"injections": [*others, control_injection(name, uid, made.spec, ranks)]}

        old, stands = self._publish(view, listed)
        replaced = "; replaces the one that was there" if _all_ours(old, name) else ""
        said = f"injection {name} slows {aimed.words()} of {view.name} {how.words()}{replaced}"
        return Change(said, f"{self.command('inject')} {aimed.options()} --off", stands)

    def take_back(self, aimed: Aim) -> Change:
        """Take injections out of the control document that this command listed there."""
        view = self._live()
        name = orders.injection_name(view.name, aimed) if aimed else None

        def without(document: ControlDocument, generation: int) -> dict[str, Any]:
            if not _all_ours(document, name):
                raise BadInput(orders.nothing_made(aimed))
            return {"injections": [each for each in document.injections if not _ours(each, name)]}

        old, stands = self._publish(view, without)
        return Change(f"injection {', '.join(_all_ours(old, name))} of {view.name}: taken back", "", stands)

    def set_policy(self, strategy: str, max_pruned_share: float | None, sets: tuple[str, ...]) -> Change:
        """Put a policy into the control document."""
        view = self._live()
        wished = orders.wish(strategy, max_pruned_share, sets, len(self._places(view)))
        return self._balance(view, wished.settings, wished.words())

    def set_default(self) -> Change:
        """Put AUTO without loss into the control document."""
        return self._balance(self._live(), LOSSLESS_AUTO, "AUTO without loss")

    def _balance(self, view: JobView, settings: BalancingSettings, words: str) -> Change:
        old, stands = self._publish(view, lambda document, generation: {"balancing": settings})
        before = "--default" if old.balancing == LOSSLESS_AUTO else orders.options_of(old.balancing)
        take_back = f"{self.command('policy')} {before}" if old.balancing != settings else ""
        return Change(f"{view.name}: policy {words}; replaces {old.balancing.strategy}", take_back, stands)

    @property
    def _directory(self) -> Path:
        assert self.place is not None  # verbs on one run are not offered without it
        return self.place

    def _live(self) -> JobView:
        """Return the run; raise BadInput where nobody would read what it is told."""
        view = self.look()
        if view.ended:
            raise BadInput(f"RUN_DIR: '{self.name}': no run is alive there ({view.state}): start one with heterotp run")
        return view

    def _places(self, view: JobView) -> tuple[RankPlace, ...]:
        groups = _groups(self._directory)
        if groups:
            return places_of(groups)
        if not view.ranks:
            raise Failed(f"{self.name}: the run has not told its ranks yet: try again in a moment")
        return places_of([{"name": "", "processesPerPod": len(view.ranks)}])

    def _publish(self, before: JobView, change: Edit) -> tuple[ControlDocument, Callable[[float], Standing]]:
        """Change the control document under its next generation; return the old one, and how to ask how that stands."""
        with _locked(self._directory):
            old = _document(self._directory / CONTROL_FILE)
            # above all that rank 0 has seen, too: somebody may have put an older file back
            generation = 1 + max(old.generation, before.generation or 0, before.applied_generation or 0)
            fields = {name: getattr(old, name) for name in ControlDocument.model_fields}
            new = _next({**fields, **change(old, generation), "generation": generation}, self._directory)
            workdir.write_json(self._directory / CONTROL_FILE, new.dump())
        return old, partial(_stands, self._directory, before, generation)


def look(place: Path) -> JobView:
    """Return the run in a directory; one that holds no status yet is named after run.json."""
    run = workdir.read_json(place / workdir.RUN) or {}
    attempt = int(run.get("attempt") or 0)
    live = workdir.alive(place)  # before the status: what is read after the end is the end
    status = read_status(place, attempt)
    state = _state(live, status.state if status is not None else None, workdir.read_json(place / workdir.REPORT))
    if status is None:
        return JobView(str(run.get("job") or place.name), state=state, attempt=attempt)
    return of_run(status, _groups(place), state)


def _state(live: bool, said: str | None, report: dict[str, Any] | None) -> str:
    """Return how a run stands: the last status of one that was killed says that it runs."""
    if live:
        return said or "starting"
    if report is not None and report.get("state"):
        return str(report["state"])
    return said if said in ("succeeded", "failed") else workdir.UNFINISHED


def _groups(place: Path) -> list[dict[str, Any]]:
    """Return the worker groups of run.json; empty in a directory of an older version."""
    return list((workdir.read_json(place / workdir.RUN) or {}).get("workerGroups") or ())


def _stands(place: Path, before: JobView, generation: int, passed: float) -> Standing:
    return standing.of_run(before, look(place), generation, passed)


def _ours(injection: ControlInjection, name: str | None) -> bool:
    """Return whether this command line made an injection, of a name where one is asked for."""
    return injection.uid.startswith(MARK) and name in (None, injection.name)


def _all_ours(document: ControlDocument, name: str | None) -> list[str]:
    return [each.name for each in document.injections if _ours(each, name)]


def _document(path: Path) -> ControlDocument:
    """Return the control document; raise BadInput where somebody's edit made it unusable."""
    try:
        return ControlDocument.model_validate_json(path.read_bytes())
    except OSError as error:
        raise Failed(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        field, value, message = first_error(error)
        where = f" {field}:{'' if value is None else f' {value!r}'}" if field else ""
        raise BadInput(f"{path}:{where} {message}: mend it first") from None


def _next(fields: dict[str, Any], place: Path) -> ControlDocument:
    """Return the next document; raise BadInput where it cannot hold any more."""
    try:
        return ControlDocument(**fields)
    except ValidationError as error:
        field, _, message = first_error(error)
        raise BadInput(f"{place / CONTROL_FILE}: {field}: {message}") from None


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Keep out another command that edits; the lock is the directory's own, and leaves no file."""
    handle = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
