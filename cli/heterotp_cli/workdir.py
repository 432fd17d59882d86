"""The run directory: its files, its lock, and the number of the next attempt.

run.json       job, attempt, worker groups (by the CLI)   control.json   policy and injections for the run
status.json    the live status, written by rank 0         history.jsonl  one line per iteration
report.json    the result                                 report.png     its picture
logs/          one file per pod and rank                  checkpoints/   unless the manifest sets another path
last_words/    of the last attempt, one file per pod: the documents of heterotp_api.last_words
journal.json   decisions, moves, injections and shares of this attempt (by rank 0), earlier_journal.json of those before
cost_calibration.json   the costs that decisions use           run.lock       held while a run is alive
"""

import fcntl
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from heterotp_api.names import CONTROL_FILE

from heterotp_cli.errors import BadInput
from heterotp_cli.journal import keep_journal

RUN, STATUS, REPORT, HISTORY, PICTURE = "run.json", "status.json", "report.json", "history.jsonl", "report.png"
CALIBRATION = "cost_calibration.json"
LOGS, LAST_WORDS, CHECKPOINTS, LOCK = "logs", "last_words", "checkpoints", "run.lock"
UNFINISHED = "unfinished"  # state of a run that ended without a report
OWNER = "owner.json"  # written by the trainer: the attempt that may write checkpoints
Mode = Literal["new", "resume", "fresh"]


@dataclass(frozen=True)
class Seen:
    """The contents of a run directory."""

    empty: bool
    job: str | None = None  # of run.json; None: no run was started here
    attempt: int = 0
    state: str | None = None  # of report.json
    iteration: int | None = None


def look(workdir: Path) -> Seen:
    """Return the contents of a directory; an absent one is empty."""
    if not workdir.is_dir():
        return Seen(empty=True)
    if not any(entry.name != LOCK for entry in workdir.iterdir()):
        return Seen(empty=True)
    run = read_json(workdir / RUN)
    if run is None:
        return Seen(empty=False)
    report = read_json(workdir / REPORT) or {}
    if (report.get("state"), report.get("iterations"), run.get("attempt")) == ("failed", 0, 1) and not _kept(workdir):
        return Seen(empty=True)  # it holds nothing of value: the same command may start again
    status = read_json(workdir / STATUS) or {}
    iteration = report.get("iterations", status.get("iteration"))
    return Seen(False, str(run.get("job")), int(run.get("attempt", 0)), report.get("state"), iteration)


def _kept(workdir: Path) -> bool:
    """Return whether the directory holds iterations, or checkpoints of a user's command."""
    history, checkpoints = workdir / HISTORY, workdir / CHECKPOINTS
    trained = history.exists() and history.stat().st_size > 0
    return trained or any(entry.name != OWNER for entry in checkpoints.glob("*"))


def next_attempt(seen: Seen, workdir: Path, job: str, mode: Mode = "new") -> int:
    """Return the attempt to start; raise BadInput with advice where the directory must not be used."""
    if seen.empty:
        if mode == "resume":
            raise BadInput(f"{workdir}: --resume: there is no run to resume: leave --resume out")
        return 1
    if seen.job is None:
        raise BadInput(f"{workdir}: --workdir: holds files that are no run: name an empty or new directory")
    if seen.job != job:
        raise BadInput(f"{workdir}: --workdir: holds the run of job '{seen.job}': name another directory")
    if mode == "new":
        raise BadInput(f"{workdir}: --workdir: {_held(seen)}: {_advice(seen)}")
    return seen.attempt + 1 if mode == "resume" else 1


def _held(seen: Seen) -> str:
    where = f" at iteration {seen.iteration}" if seen.iteration is not None else ""
    return f"holds attempt {seen.attempt} of job '{seen.job}', {seen.state or UNFINISHED}{where}"


def _advice(seen: Seen) -> str:
    if seen.state == "succeeded":
        return "name another directory, or discard it with --fresh"
    return "continue it with --resume, discard it with --fresh, or name another directory"


def claim(workdir: Path, job: str, mode: Mode) -> tuple[IO[str], int]:
    """Return the directory's lock and the attempt to start; raise BadInput where it must not be used."""
    if look(workdir).job is None:
        next_attempt(look(workdir), workdir, job, mode)  # raises before anything is written
    handle = lock(workdir)
    try:
        return handle, next_attempt(look(workdir), workdir, job, mode)
    except BadInput:
        handle.close()
        raise


def lock(workdir: Path) -> IO[str]:
    """Return the directory's lock, held until closed or this process ends; raise BadInput while a run is alive."""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        handle = (workdir / LOCK).open("a", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{workdir}: --workdir: cannot be written: {error.strerror}: name another directory") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise BadInput(f"{workdir}: --workdir: a run is alive there: wait for it or name another directory") from None
    return handle


def alive(workdir: Path) -> bool:
    """Return whether a run holds the directory's lock."""
    try:
        with (workdir / LOCK).open(encoding="utf-8") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # there is no lock file
    return False


def prepare(
    workdir: Path, job: str, attempt: int, control: dict[str, Any], groups: Sequence[dict[str, Any]] = ()
) -> None:
    """Write run.json and control.json; remove the reports of an earlier attempt, for attempt 1 all its files.

    groups: name, pods, processesPerPod and device of the worker groups, which status.json does not hold.
    """
    keep_journal(workdir, attempt)
    for stale in (STATUS, REPORT, PICTURE):
        (workdir / stale).unlink(missing_ok=True)
    if attempt == 1:
        for stale in (HISTORY, CALIBRATION):
            (workdir / stale).unlink(missing_ok=True)
        for folder in (LOGS, CHECKPOINTS):
            shutil.rmtree(workdir / folder, ignore_errors=True)
    shutil.rmtree(workdir / LAST_WORDS, ignore_errors=True)
    for folder in (LOGS, LAST_WORDS):
        (workdir / folder).mkdir(exist_ok=True)
    write_json(workdir / CONTROL_FILE, control)
    write_json(workdir / RUN, {"job": job, "attempt": attempt, **({"workerGroups": list(groups)} if groups else {})})


def last_words_file(workdir: Path, pod: str) -> Path:
    """Return the file in which a pod leaves the documents of heterotp_api.last_words."""
    return workdir / LAST_WORDS / f"{pod}.jsonl"


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a document atomically: a reader sees the old one or the new one."""
    temporary = path.with_name(path.name + f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object of a file; None where there is no file or no object in it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
