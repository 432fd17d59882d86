"""The two programs that have the verbs on jobs, and what the commands of these verbs share."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from heterotp_cli.errors import BadInput, Failed

if TYPE_CHECKING:  # a verb imports what reads and draws jobs when it is called, not for its help
    from heterotp_cli.verbs.target import Change, Target

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
NO_WAIT = click.option("--no-wait", is_flag=True, help="Do not wait until all ranks follow.")
OUTPUT = click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON.")


@dataclass(frozen=True)
class Program:
    """A program with verbs on jobs: its argument and word for a job, the options that find it, how it opens one."""

    argument: str
    thing: str
    options: Sequence[click.Option]
    open: Callable[..., "Target"]
    on_cluster: bool  # jobs have namespaces and nodes


def job_command(program: Program, help_text: str, required: bool = True) -> Callable[[Decorated], click.Command]:
    """Return the decorator that makes a function the command of a verb on one job."""

    def decorate(function: Decorated) -> click.Command:
        metavar = program.argument if required else f"[{program.argument}]"
        argument = click.argument("name", metavar=metavar, required=required)
        command = click.command(help=help_text)(argument(function))
        command.params += program.options
        return command

    return decorate


def option_if(condition: bool, *declarations: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Return the decorator of an option, or one that adds nothing."""
    return click.option(*declarations, **settings) if condition else lambda function: function


def refuse_beside(flag: str, others: Mapping[str, object]) -> None:
    """Raise BadInput where an option is given that excludes `flag`; others: options and values, None: not given."""
    given = next((option for option, value in others.items() if value is not None), None)
    if given is not None:
        raise BadInput(f"{given}: with {flag}: give one of them")


def finish_change(change: "Change", no_wait: bool) -> None:
    """Print what was changed and the command that undoes it; wait until it is in force, or raise Failed."""
    from heterotp_cli.verbs.target import await_change

    click.echo(change.description)
    if change.undo_command:
        click.echo(f"take it back: {change.undo_command}")
    if no_wait:
        return
    status, passed = await_change(change, time.monotonic, time.sleep)
    if status.verdict == "refused":
        raise Failed(f"refused: {status.text}")
    if status.verdict == "pending":
        raise Failed(f"not in force after {passed:.0f} s: {status.text}")
    click.echo(status.text if status.verdict == "later" else f"in force on all ranks after {passed:.1f} s")
