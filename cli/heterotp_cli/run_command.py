"""`heterotp run`: train the job of a manifest on this machine."""

import importlib.util
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from heterotp_api.job import HeteroTPJob
from heterotp_api.last_words import RankFailure
from heterotp_api.load import ManifestError, load_manifest
from heterotp_api.names import EXIT_BAD_INPUT as TRAINER_BAD_INPUT
from heterotp_api.names import Env
from heterotp_api.ranks import rank_table
from heterotp_api.report import RunState
from heterotp_api.template import template_error
from heterotp_api.trainer_status import TrainerStatus

from heterotp_cli import workdir as directory
from heterotp_cli.control import Chosen, choose, unfit_policy
from heterotp_cli.errors import EXIT_INTERRUPTED, BadInput, Failed
from heterotp_cli.follow import read_history
from heterotp_cli.goal import Goal
from heterotp_cli.gpus import deal, visible
from heterotp_cli.journal import read_journal, with_journal
from heterotp_cli.logs import rank_log
from heterotp_cli.pods import PodCommand, free_ports, pod_commands, program_digest
from heterotp_cli.report import completed, summary_lines
from heterotp_cli.run_lock import is_in
from heterotp_cli.ui.needed import require_server

if TYPE_CHECKING:
    from heterotp_cli.runner import Outcome


@click.command("run")
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("--workdir", type=click.Path(path_type=Path), help="Run directory; default ./runs/<job>.")
@click.option("--resume", is_flag=True, help="Continue the run in the directory from its last checkpoint.")
@click.option("--fresh", is_flag=True, help="Discard an earlier run of the same job in the directory.")
@click.option("--ui", is_flag=True, help="Serve a page that shows the run, see `heterotp ui`; print its address.")
def command(manifest: Path, workdir: Path | None, resume: bool, fresh: bool, ui: bool) -> None:
    """Train the HeteroTPJob of MANIFEST on this machine, one process per rank, without Kubernetes.

    Ctrl-C writes a last checkpoint and stops all ranks; a second one kills them. Exits 0 done, 1 failed,
    2 bad input, 130 stopped.
    """
    if resume and fresh:
        raise BadInput("--fresh: with --resume: give one of them")
    chosen = read_manifest(manifest)
    if not resume and (problem := held_checkpoints(chosen.job)) is not None:
        raise BadInput(f"{manifest}: {problem}")
    require_trainer()
    if ui:
        require_server()
    try:
        gpus, note = deal(chosen.job, visible(os.environ))
    except ValueError as error:
        raise BadInput(f"{manifest}: {error}") from None
    name = chosen.job.metadata.name
    place = Path(os.path.abspath(workdir or Path("runs") / name))
    goal = goal_of(chosen.job)
    handle, attempt = directory.claim(place, name, "resume" if resume else "fresh" if fresh else "new", goal)
    with handle, fails_without(place, handle.fileno()):
        directory.prepare(place, name, attempt, chosen.control.dump(), group_facts(chosen.job), goal.program)
        chosen = replace(chosen, notes=(*chosen.notes, *filter(None, [note])))
        with page(place) if ui else nullcontext():
            run_attempt(manifest, chosen, attempt, place, gpus, handle.fileno())


def page(place: Path) -> AbstractContextManager[None]:
    """Return the server of the run's page, which prints its address."""
    from heterotp_cli.ui.beside import page_beside

    return page_beside(place)


@contextmanager
def fails_without(place: Path, lock: int) -> Iterator[None]:
    """Raise Failed for an error of a file where the run directory was removed or replaced meanwhile."""
    try:
        yield
    except OSError:
        if is_in(place, lock):
            raise
        raise Failed(lost_text(place)) from None


def lost_text(place: Path) -> str:
    """Return the error of a run without its directory."""
    advice = "start it again in a directory that stays"
    return f"{place}: --workdir: was removed or replaced during the run, which has ended: {advice}"


def group_facts(job: HeteroTPJob) -> list[dict[str, object]]:
    """Return the worker groups without templates: name and number of every rank follow from them."""
    return [
        group.model_dump(by_alias=True, exclude_none=True, exclude={"template"}) for group in job.spec.worker_groups
    ]


def goal_of(job: HeteroTPJob) -> Goal:
    """Return how far the manifest asks to train."""
    training = job.spec.training
    return Goal(program=program_digest(job)) if training is None else Goal(training.iterations, training.epochs)


def read_manifest(manifest: Path, *, to_run: bool = True) -> Chosen:
    """Return the job; raise BadInput naming file, field and value; to_run: also for what this machine lacks."""
    try:
        chosen = choose(load_manifest(manifest))
    except ManifestError as error:
        raise BadInput(str(error)) from None
    except ValueError as error:
        raise BadInput(f"{manifest}: {error}") from None
    problem = local_problem(chosen.job) if to_run else template_error(chosen.job.spec)
    if (problem := problem or unfit_policy(chosen)) is not None:
        raise BadInput(f"{manifest}: {problem}")
    return chosen


def local_problem(job: HeteroTPJob) -> str | None:
    """Return what this machine lacks for a valid manifest, as `field: value: what would be right`."""
    wrong = template_error(job.spec)
    if wrong is not None:
        return wrong
    training = job.spec.training
    if training is None:
        return None
    path, checkpoint = training.data.path, training.model.huggingface
    if path is not None and not os.path.exists(path):
        return f"spec.training.data.path: '{path}' does not exist: name a file or directory with the data set"
    if checkpoint is not None and not os.path.isdir(checkpoint):
        return f"spec.training.model.huggingface: '{checkpoint}' does not exist: name the directory of a checkpoint"
    return None


def held_checkpoints(job: HeteroTPJob) -> str | None:
    """Return the problem that the manifest's checkpoint directory holds checkpoints of an earlier run, else None."""
    checkpoint = job.spec.checkpoint
    path = checkpoint.path if checkpoint is not None else None
    if checkpoint is None or path is None or checkpoint.adopt or not os.path.isdir(path):
        return None
    owner = directory.read_json(Path(path) / directory.OWNER) or {}
    if not any(Path(path).glob("step-*")) and owner.get("attempt", 1) == 1:
        return None
    advice = "remove or name another directory, continue with --resume, or set spec.checkpoint.adopt: true"
    return f"spec.checkpoint.path: '{path}' holds checkpoints of an earlier run: {advice}"


def require_trainer() -> None:
    """Raise Failed where the trainer's packages are not installed."""
    for module in ("torch", "heterotp_trainer"):
        if importlib.util.find_spec(module) is None:
            raise Failed(f"{module} is not installed: pip install 'heterotp[trainer,cli]'")


def run_attempt(
    manifest: Path, chosen: Chosen, attempt: int, place: Path, gpus: Sequence[str | None], lock: int
) -> None:
    """Run one attempt and write report.json, report.html and report.png; raise BadInput or Failed where it failed.

    lock: file descriptor of the run directory's lock.
    """
    from rich.console import Console

    from heterotp_cli.live import open_view
    from heterotp_cli.runner import train

    job, places = chosen.job, rank_table(chosen.job.spec)
    ports = free_ports(job)
    identity = {Env.JOB_UID: directory.uid_of(place), Env.RENDEZVOUS_SECRET: secrets.token_hex(32)}
    commands = pod_commands(job, attempt, place, ports, sys.executable, os.environ, gpus, identity)
    view = open_view(Console(), places)
    try:
        view.note(f"{job.metadata.name}: {len(places)} ranks, run directory {place}")
        for note in chosen.notes:
            view.note(f"note: {note}")
        outcome = train(commands, place, attempt, view, lock, elastic=job.spec.run_policy.elastic is not None)
    finally:
        with suppress(OSError):  # a closed terminal must not prevent the report
            view.close()
    if outcome.workdir_lost:
        raise Failed(lost_text(place))
    report = finish(job, attempt, outcome.state, outcome.status, place)
    refused = refusal(outcome)
    if refused is not None and not (outcome.status and outcome.status.iteration):
        raise refused_input(manifest, refused, place)
    for line in summary_lines(report, outcome.elapsed_seconds):
        click.echo(line)
    for line in without_session(job, attempt, outcome, place):
        click.echo(line)
    click.echo(f"  report         {place / directory.REPORT}")
    draw_page(report, place)
    draw_picture(report, place)
    if refused is not None:
        raise refused_input(manifest, refused, place)
    if outcome.state == "failed":
        blamed = outcome.blamed or 0
        raise_failed(commands[blamed], outcome.codes[blamed], outcome.failure, place)
    if outcome.state == "stopped":
        told = outcome.status.message if outcome.status is not None else ""
        click.echo(f"{told or 'stopped'}; continue with --resume")
        sys.exit(EXIT_INTERRUPTED)


def without_session(job: HeteroTPJob, attempt: int, outcome: "Outcome", place: Path) -> list[str]:
    """Return the note on a command that ended well without any rank that made a session; empty where one did."""
    checkpoint = job.spec.checkpoint
    given = checkpoint.path if checkpoint is not None else None
    if outcome.state != "succeeded" or directory.made_session(place, attempt, given):
        return []
    what = "nothing was balanced, saved or measured: does the script call heterotp.run_rank(main)?"
    return [f"  note           no rank made a session: {what}"]


def finish(
    job: HeteroTPJob, attempt: int, state: RunState, status: TrainerStatus | None, place: Path
) -> dict[str, object]:
    """Complete report.json and return it."""
    written = directory.read_json(place / directory.REPORT)
    name, places = job.metadata.name, rank_table(job.spec)
    report = completed(written, state, name, attempt, status, read_history(place), places)
    report = with_journal(report, read_journal(place))
    if report != written:
        directory.write_json(place / directory.REPORT, report)
    return report


def draw_page(report: dict[str, object], place: Path) -> None:
    """Write report.html, where the history has two iterations."""
    history = read_history(place)
    if len(history) < 2:
        return
    from heterotp_cli.page.write import write_page

    write_page(history, report, place / directory.PAGE)
    click.echo(f"  page           {place / directory.PAGE}")


def draw_picture(report: dict[str, object], place: Path) -> None:
    """Draw report.png, where matplotlib is installed and the history has two iterations."""
    if importlib.util.find_spec("matplotlib") is None:
        click.echo("  picture        none: matplotlib is not installed: pip install 'heterotp[cli]'")
        return
    history = read_history(place)
    if len(history) < 2:
        return
    from heterotp_cli.picture import draw

    target = place / directory.PICTURE
    draw(history, report, target, directory.read_json(place / directory.CALIBRATION))
    click.echo(f"  picture        {target}")


def refusal(outcome: "Outcome") -> RankFailure | None:
    """Return the failure of the rank that refused the manifest; None where the attempt ended otherwise."""
    failure = outcome.failure if outcome.state == "failed" else None
    return failure if failure is not None and failure.exit_code == TRAINER_BAD_INPUT else None


def refused_input(manifest: Path, refused: RankFailure, place: Path) -> BadInput:
    """Return the error of a rank that refused the manifest or its script: its own message, and where its log is."""
    log = rank_log(place / directory.LOGS, refused.rank)
    return BadInput(f"{manifest}: {refused.message.removeprefix('error: ')} (said by rank {refused.rank}, log: {log})")


def raise_failed(blamed: PodCommand, code: int | None, failure: RankFailure | None, place: Path) -> None:
    """Raise Failed with the end of the log, and the option to continue with."""
    from heterotp_cli.blame import failure_text

    advice = "start it again" if directory.look(place).empty else "continue with --resume"
    raise Failed(failure_text(blamed.name, blamed.ranks, code, failure, place / directory.LOGS, advice))
