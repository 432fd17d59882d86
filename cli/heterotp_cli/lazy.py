"""A command line whose commands are imported on use; a user's mistake is shown as one line."""

import errno
import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from heterotp_cli.errors import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, BadInput, Failed
from heterotp_cli.registry import Verb
from heterotp_cli.verbs.program import Program

NO_COMMAND: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())  # click 8.1 prints the help itself


class LazyGroup(click.Group):
    """A group that lists its commands from the registry, and imports a command when it is called."""

    def __init__(self, *args: Any, verbs: Sequence[Verb], program: Program, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._verbs, self._program = {verb.name: verb for verb in verbs}, program

    @property
    def help_lines(self) -> list[tuple[str, str]]:
        """Name and one line of help of every command."""
        return [(verb.name, verb.help.format(thing=self._program.thing)) for verb in self._verbs.values()]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the registry."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a verb and return its command."""
        verb = self._verbs.get(cmd_name)
        if verb is None:
            return None
        module = importlib.import_module(f"heterotp_cli.{verb.module}")
        command: click.Command = module.build(self._program) if verb.on_jobs else module.command
        command.name = verb.name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help lines of the registry."""
        with formatter.section("Commands"):
            formatter.write_dl(self.help_lines)


def enter(group: click.Group, prog_name: str) -> None:
    """Run a command line; exit 0 done, 1 failed, 2 bad input, 130 stopped by Ctrl-C."""
    sys.exit(_code(group, prog_name))


def _code(group: click.Group, prog_name: str) -> int:
    try:
        code = group.main(prog_name=prog_name, standalone_mode=False)
    except (BadInput, Failed) as error:
        click.echo(_shown(error), err=True)
        return EXIT_BAD_INPUT if isinstance(error, BadInput) else EXIT_FAILED
    except click.Abort:
        return EXIT_INTERRUPTED
    except NO_COMMAND as error:  # its message is the help of the group
        click.echo(error.format_message(), err=True)
        return EXIT_BAD_INPUT
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        click.echo(_shown(BadInput(f"{error.filename}: a name in it is too long: give a shorter one")), err=True)
        return EXIT_BAD_INPUT
    except click.UsageError as error:
        click.echo(usage_line(error, prog_name), err=True)
        return EXIT_BAD_INPUT
    return code if isinstance(code, int) else EXIT_DONE


def _shown(error: BadInput | Failed) -> str:
    """Return the message; of bad input, which holds what the user gave, one printable line."""
    if isinstance(error, Failed):
        return str(error)
    from heterotp_api.formatting import one_line

    return one_line(str(error))


def usage_line(error: click.UsageError, prog_name: str) -> str:
    """Return one line for options and arguments that are not valid."""
    path = error.ctx.command_path if error.ctx is not None else prog_name
    message = " ".join(error.format_message().split()).rstrip(".")
    return f"{path}: {message[:1].lower()}{message[1:]} (see {path} --help)"
