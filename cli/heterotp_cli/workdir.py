"""The run directory: its files, and the number of the next attempt.

run.json       job, uid, attempt, worker groups, program   control.json   policy and injections
status.json    the live status, written by rank 0         history.jsonl  one line per iteration
report.json    the result                                 report.png     its picture
report.html    its page
logs/          one file per pod and rank                  checkpoints/   unless the manifest sets another path
traces/        of `heterotp trace`, see heterotp_api.rank_trace
tensorboard/, mlruns/, wandb/   where the manifest's spec.reporting asks for them
last_words/    of the last attempt, one file per pod: the documents of heterotp_api.last_words
journal.json   decisions, moves, injections and shares of this attempt (by rank 0), earlier_journal.json of those before
cost_calibration.json   the costs that decisions use           run.lock       see run_lock.py
"""

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from heterotp_api.names import CONTROL_FILE
from heterotp_api.rank_trace import TRACES
from heterotp_api.reporting import FOLDERS

from heterotp_cli.errors import BadInput
from heterotp_cli.goal import Goal
from heterotp_cli.journal import keep_journal
from heterotp_cli.run_lock import LOCK, lock

RUN, STATUS, REPORT, HISTORY = "run.json", "status.json", "report.json", "history.jsonl"
PICTURE, PAGE = "report.png", "report.html"
CALIBRATION = "cost_calibration.json"
LOGS, LAST_WORDS, CHECKPOINTS = "logs", "last_words", "checkpoints"
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
    done: Goal = field(default_factory=Goal)  # how far the run has come, and its program


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
    done = Goal(iteration, report.get("epochs"), run.get("program"))
    return Seen(False, str(run.get("job")), int(run.get("attempt", 0)), report.get("state"), iteration, done)


def _kept(workdir: Path) -> bool:
    """Return whether the directory holds iterations, or checkpoints of a user's command."""
    history, checkpoints = workdir / HISTORY, workdir / CHECKPOINTS
    trained = history.exists() and history.stat().st_size > 0
    return trained or any(entry.name != OWNER and entry.name[0] != "." for entry in checkpoints.glob("*"))


def next_attempt(seen: Seen, workdir: Path, job: str, mode: Mode = "new", goal: Goal | None = None) -> int:
    """Return the attempt to start; raise BadInput with advice where the directory must not be used.

    goal: of the manifest; without one a run that has succeeded may be resumed.
    """
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
    if mode == "fresh":
        return 1
    if seen.state == "succeeded" and goal is not None and not goal.goes_beyond(seen.done):
        advice = f"{goal.advice(seen.done)}, or discard the run with --fresh"
        raise BadInput(f"{workdir}: --resume: {_held(seen)}: {advice}")
    return seen.attempt + 1


def _held(seen: Seen) -> str:
    where = f" at iteration {seen.iteration}" if seen.iteration is not None else ""
    return f"holds attempt {seen.attempt} of job '{seen.job}', {seen.state or UNFINISHED}{where}"


def _advice(seen: Seen) -> str:
    if seen.state == "succeeded":
        return "name another directory, discard it with --fresh, or ask for more training and continue with --resume"
    return "continue it with --resume, discard it with --fresh, or name another directory"


def claim(workdir: Path, job: str, mode: Mode, goal: Goal | None = None) -> tuple[IO[str], int]:
    """Return the directory's lock and the attempt to start; raise BadInput where it must not be used."""
    if look(workdir).job is None:
        next_attempt(look(workdir), workdir, job, mode, goal)  # raises before anything is written
    handle = lock(workdir)
    try:
        return handle, next_attempt(look(workdir), workdir, job, mode, goal)
    except BadInput:
        handle.close()
        raise


def prepare(
    workdir: Path,
    job: str,
    attempt: int,
    control: dict[str, Any],
    groups: Sequence[dict[str, Any]] = (),
    program: str | None = None,
) -> None:
    """Write run.json and control.json; remove the reports of an earlier attempt, for attempt 1 all its files.

    groups: name, pods, processesPerPod and device of the worker groups, which status.json does not hold.
    program: digest of an own program, see Goal.
    """
    keep_journal(workdir, attempt)
    uid = (uid_of(workdir) if attempt > 1 else "") or str(uuid.uuid4())
    for stale in (STATUS, REPORT, PICTURE, PAGE):
        (workdir / stale).unlink(missing_ok=True)
    if attempt == 1:
        for stale in (HISTORY, CALIBRATION):
            (workdir / stale).unlink(missing_ok=True)
        for folder in (LOGS, CHECKPOINTS, TRACES, *FOLDERS.values()):
            shutil.rmtree(workdir / folder, ignore_errors=True)
    shutil.rmtree(workdir / LAST_WORDS, ignore_errors=True)
    for folder in (LOGS, LAST_WORDS):
        (workdir / folder).mkdir(exist_ok=True)
    write_json(workdir / CONTROL_FILE, control)
    more = {"workerGroups": list(groups) or None, "program": program}
    known = {key: value for key, value in more.items() if value is not None}
    write_json(workdir / RUN, {"job": job, "uid": uid, "attempt": attempt, **known})


def made_session(workdir: Path, attempt: int, checkpoints: str | None) -> bool:
    """Return whether rank 0 of this attempt made a session, which claims the directory of checkpoints.

    checkpoints: the directory that the manifest names; None: the one in the run directory.
    """
    root, uid = Path(checkpoints or workdir / CHECKPOINTS), uid_of(workdir)
    owners = [read_json(folder / OWNER) or {} for folder in (root, root / f"job-{uid}")]  # see the trainer's claims
    return any((owner.get("uid"), owner.get("attempt")) == (uid, attempt) for owner in owners)


def uid_of(workdir: Path) -> str:
    """Return the uid of the run in a directory, the same for all its attempts; empty where there is none."""
    return str((read_json(workdir / RUN) or {}).get("uid") or "")


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
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
