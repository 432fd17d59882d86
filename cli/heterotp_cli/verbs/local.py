"""The verbs on a run directory: read status.json; edit control.json."""

import fcntl
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from heterotp_api.control import LOSSLESS_AUTO, ControlDocument, ControlInjection, control_injection
from heterotp_api.formatting import listed, ranks_listed
from heterotp_api.load import first_error
from heterotp_api.names import CONTROL_FILE
from heterotp_api.policy import BalancingSettings, beyond
from heterotp_api.rank_trace import TraceRequest
from heterotp_api.ranks import RankPlace
from pydantic import ValidationError

from heterotp_cli import workdir
from heterotp_cli.errors import BadInput, Failed
from heterotp_cli.follow import read_status
from heterotp_cli.journal import read_journal
from heterotp_cli.run_lock import alive
from heterotp_cli.verbs import change_requests, change_status
from heterotp_cli.verbs.change_requests import RankSelector, SlowdownRequest
from heterotp_cli.verbs.target import Change, ChangeStatus
from heterotp_cli.verbs.view import JobView, of_run, places_of

RUNS = Path("runs")  # where `heterotp run` makes run directories
UID_PREFIX = "inject/"  # of the uid of injections that the command line made
MOST_LISTED = 5  # runs in an error message
Edit = Callable[
    [ControlDocument, int], dict[str, Any]
]  # from the document and its next generation to the changed fields


class Published(NamedTuple):
    """The control document before a change, the change's status, and what puts the old document back; see Change."""

    old: ControlDocument
    status: Callable[[float], ChangeStatus]
    put_back: Callable[[], bool]


def open_run(name: str | None) -> "LocalTarget":
    """Return the target of a run directory, of ./runs/NAME for the name of a job, or of ./runs for None."""
    if name is None:
        return LocalTarget(None, "")
    place = Path(name)
    if name and not place.is_dir() and (RUNS / name).is_dir():
        place = RUNS / name
    if not name or workdir.read_json(place / workdir.RUN) is None:
        why = "holds no run" if place.is_dir() and name else "there is no such directory"
        raise BadInput(f"RUN_DIR: '{name}': {why}: name the directory of a `heterotp run`{_existing_runs()}")
    return LocalTarget(place, name)


def run_directories() -> list[Path]:
    """Return the run directories below ./runs."""
    return sorted(path.parent for path in RUNS.glob(f"*/{workdir.RUN}"))


def newest_run() -> str:
    """Return the run directory below ./runs that was written last; raise BadInput where there is none."""
    found = run_directories()
    if not found:
        raise BadInput(f"RUN_DIR: there is no run below ./{RUNS}: name the directory of a `heterotp run`")
    return str(max(found, key=_written))


def _written(place: Path) -> float:
    """Return when a run last wrote its status or began, unix seconds."""
    times = [path.stat().st_mtime for path in (place / workdir.RUN, place / workdir.STATUS) if path.exists()]
    return max(times, default=0.0)


def _existing_runs() -> str:
    found = [str(path) for path in run_directories()]
    return f"; there are {listed(found, MOST_LISTED)}" if found else ""


@dataclass(frozen=True)
class LocalTarget:
    """One run directory; `name` is the argument that the user gave."""

    place: Path | None
    name: str

    def look(self) -> JobView:
        """Return the run by its last status."""
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

    def inject(self, selector: RankSelector, slowdown: SlowdownRequest) -> Change:
        """Add an injection to the control document, in place of one with the same ranks."""
        view = self._live()
        made = change_requests.injection(view.name, "default", selector, slowdown)
        if selector.groups and not _groups(self._directory):
            missing = "run.json lists no groups, an older version wrote it: use --rank"
            raise BadInput(f"--group: '{selector.groups[0]}': {missing}")
        ranks = change_requests.target_ranks(made.spec.targets, self._places(view), None)
        name = made.metadata.name

        def with_it(document: ControlDocument, generation: int) -> dict[str, Any]:
            uid = f"{UID_PREFIX}{name}/{generation}"  # new each time, so that its age starts at 0
            others = [each for each in document.injections if not _ours(each, name)]
            return {"injections": [*others, control_injection(name, uid, made.spec, ranks)]}

        published = self._publish(view, with_it)
        replaced = "; replaces the one that was there" if _all_ours(published.old, name) else ""
        description = (
            f"injection {name} slows {selector.description()} of {view.name} {slowdown.description()}{replaced}"
        )
        return Change(
            description, f"{self.command('inject')} {selector.options()} --off", published.status, published.put_back
        )

    def remove_injections(self, selector: RankSelector) -> Change:
        """Remove injections that this command line added to the control document."""
        view = self._live()
        name = change_requests.injection_name(view.name, selector) if selector else None

        def without(document: ControlDocument, generation: int) -> dict[str, Any]:
            if not _all_ours(document, name):
                raise BadInput(change_requests.no_injection_text(selector))
            return {"injections": [each for each in document.injections if not _ours(each, name)]}

        published = self._publish(view, without)
        return Change(
            f"injection {listed(_all_ours(published.old, name))} of {view.name}: taken back",
            "",
            published.status,
            published.put_back,
        )

    def set_policy(self, strategy: str, max_pruned_share: float | None, sets: tuple[str, ...]) -> Change:
        """Put a policy into the control document."""
        view = self._live()
        request = change_requests.policy_request(strategy, max_pruned_share, sets, len(self._places(view)))
        return self._balance(view, request.settings, request.description())

    def set_default(self) -> Change:
        """Put AUTO without loss into the control document."""
        return self._balance(self._live(), LOSSLESS_AUTO, "AUTO without loss")

    def _balance(self, view: JobView, settings: BalancingSettings, policy: str) -> Change:
        published = self._publish(view, lambda document, generation: {"balancing": settings})
        old = published.old.balancing
        before = "--default" if old == LOSSLESS_AUTO else change_requests.options_of(old)
        undo_command = f"{self.command('policy')} {before}" if old != settings else ""
        return Change(
            f"{view.name}: policy {policy}; replaces {old.strategy}", undo_command, published.status, published.put_back
        )

    def trace(self, request: TraceRequest) -> None:
        """Put a request for a trace into the control document."""
        view = self._live()
        if request.ranks is not None and (wrong := beyond(request.ranks, len(self._places(view)))) is not None:
            raise BadInput(f"--rank: {wrong}")
        if view.live and (lost := sorted(set(request.ranks or ()) - set(view.live))):
            be = "is" if len(lost) == 1 else "are"
            raise BadInput(f"--rank: {ranks_listed(lost)} {be} lost; left: {ranks_listed(view.live)}")
        self._publish(view, lambda document, generation: {"trace": request})

    def groups(self) -> dict[int, str]:
        """Return the worker group of each rank that lives."""
        view = self.look()
        groups = [str(place.group) for place in self._places(view)]
        return {rank: groups[rank] for rank in view.live or range(len(groups))}

    def decisions(self) -> list[dict[str, Any]]:
        """Return the decisions of all attempts, ascending; keys as in report.json."""
        return [made.model_dump(by_alias=True) for made in read_journal(self._directory).decisions]

    def end_trace(self, uid: str) -> None:
        """Take a request for a trace out of the control document, if it is still there."""
        view = self.look()

        def without(document: ControlDocument, generation: int) -> dict[str, Any]:
            ours = document.trace is not None and document.trace.uid == uid
            return {"trace": None} if ours else {}

        self._publish(view, without)

    @property
    def _directory(self) -> Path:
        assert self.place is not None  # a verb on one run requires its directory
        return self.place

    def _live(self) -> JobView:
        """Return the run; raise BadInput where it has ended, and so reads no control document."""
        view = self.look()
        if view.ended:
            raise BadInput(f"RUN_DIR: '{self.name}': no run is alive there ({view.state}): start one with heterotp run")
        return view

    def _places(self, view: JobView) -> tuple[RankPlace, ...]:
        groups = _groups(self._directory)
        if groups:
            return places_of(groups)
        if not view.ranks:
            raise Failed(f"{self.name}: rank 0 has not reported the ranks yet: try again in a moment")
        return places_of([{"name": "", "processesPerPod": len(view.ranks)}])

    def _publish(self, before: JobView, change: Edit) -> Published:
        """Change the control document and raise its generation."""
        with _locked(self._directory):
            old = _document(self._directory / CONTROL_FILE)
            # above what rank 0 has read, too: an older file may have been restored
            generation = 1 + max(old.generation, before.generation or 0, before.applied_generation or 0)
            fields = {name: getattr(old, name) for name in ControlDocument.model_fields}
            new = _next({**fields, **change(old, generation), "generation": generation}, self._directory)
            workdir.write_json(self._directory / CONTROL_FILE, new.dump())
        place = self._directory
        return Published(old, partial(_change_status, place, generation), partial(_put_back, place, old, generation))


def look(place: Path) -> JobView:
    """Return the run in a directory; without a status it shows only what run.json holds."""
    run = workdir.read_json(place / workdir.RUN) or {}
    attempt = int(run.get("attempt") or 0)
    live = alive(place)  # read before the status, so that after the end the last status is read
    status = read_status(place, attempt)
    state = _state(live, status.state if status is not None else None, workdir.read_json(place / workdir.REPORT))
    if status is None:
        return JobView(str(run.get("job") or place.name), state=state, attempt=attempt)
    return of_run(status, _groups(place), state)


def _state(live: bool, reported: str | None, report: dict[str, Any] | None) -> str:
    """Return the state of a run; the last status of a killed run still reports `running`."""
    if live:
        return reported or "starting"
    if report is not None and report.get("state"):
        return str(report["state"])
    return reported if reported in ("succeeded", "failed") else workdir.UNFINISHED


def _groups(place: Path) -> list[dict[str, Any]]:
    """Return the worker groups of run.json; empty in a directory of an older version."""
    return list((workdir.read_json(place / workdir.RUN) or {}).get("workerGroups") or ())


def _change_status(place: Path, generation: int, passed: float) -> ChangeStatus:
    return change_status.run_change_status(look(place), generation, passed)


def _put_back(place: Path, old: ControlDocument, generation: int) -> bool:
    """Publish the old document again; False: the run has ended, or another change came after this generation."""
    if look(place).ended:
        return False
    with _locked(place):
        if _document(place / CONTROL_FILE).generation != generation:
            return False
        workdir.write_json(place / CONTROL_FILE, old.model_copy(update={"generation": generation + 1}).dump())
    return True


def _ours(injection: ControlInjection, name: str | None) -> bool:
    """Return whether this command line made an injection; name: and whether it has that name."""
    return injection.uid.startswith(UID_PREFIX) and name in (None, injection.name)


def _all_ours(document: ControlDocument, name: str | None) -> list[str]:
    return [each.name for each in document.injections if _ours(each, name)]


def _document(path: Path) -> ControlDocument:
    """Return the control document; raise BadInput where it is not valid, Failed where it cannot be read."""
    try:
        return ControlDocument.model_validate_json(path.read_bytes())
    except OSError as error:
        raise Failed(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        field, value, message = first_error(error, ControlDocument)
        where = f" {field}:{'' if value is None else f' {value!r}'}" if field else ""
        raise BadInput(f"{path}:{where} {message}: mend it first") from None


def _next(fields: dict[str, Any], place: Path) -> ControlDocument:
    """Return the next document; raise BadInput where it would not be valid, e.g. with too many injections."""
    try:
        return ControlDocument(**fields)
    except ValidationError as error:
        field, _, message = first_error(error)
        raise BadInput(f"{place / CONTROL_FILE}: {field}: {message}") from None


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Hold a lock on the directory itself, so that no other command edits and no lock file remains."""
    handle = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
