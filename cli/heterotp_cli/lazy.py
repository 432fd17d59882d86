"""A command line whose commands are imported on use, and whose every mistake is one line."""

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import click

from heterotp_cli.errors import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, BadInput, Failed

Table = Mapping[str, tuple[str, str]]  # name -> (module:attribute, what --help says)


class LazyGroup(click.Group):
    """A group that lists its commands from a table, and imports one when it is called."""

    def __init__(self, *args: Any, table: Table, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and return the command."""
        if cmd_name not in self._table:
            return None
        module, _, attribute = self._table[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table's own help lines."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])


def enter(group: click.Group, prog_name: str) -> None:
    """Run a command line; exit 0 done, 1 failed, 2 bad input, 130 stopped by Ctrl-C."""
    sys.exit(_code(group, prog_name))


def _code(group: click.Group, prog_name: str) -> int:
    try:
        code = group.main(prog_name=prog_name, standalone_mode=False)
    except (BadInput, Failed) as error:
        click.echo(str(error), err=True)
        return EXIT_BAD_INPUT if isinstance(error, BadInput) else EXIT_FAILED
    except click.Abort:
        return EXIT_INTERRUPTED
    except click.UsageError as error:
        click.echo(usage_line(error, prog_name), err=True)
        return EXIT_BAD_INPUT
    return code if isinstance(code, int) else EXIT_DONE


def usage_line(error: click.UsageError, prog_name: str) -> str:
    """Return one line for options and arguments that do not fit, or the help where nothing was given at all."""
    path = error.ctx.command_path if error.ctx is not None else prog_name
    message = error.format_message()
    if error.ctx is not None and message == error.ctx.get_help():  # click's way to say that no command was given
        return message
    words = " ".join(message.split()).rstrip(".")
    return f"{path}: {words[:1].lower()}{words[1:]} (see {path} --help)"
