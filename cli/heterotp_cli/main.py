"""`heterotp`: the click group; a command's module is imported only when that command is called.

`heterotp --help` must stay instant, so nothing here imports torch, pydantic, rich or matplotlib.
"""

import importlib
import sys

import click

from heterotp_cli.errors import EXIT_BAD_INPUT, EXIT_FAILED, BadInput, Failed

# name -> (module, what --help says): the group lists its commands without importing them
COMMANDS = {
    "run": ("heterotp_cli.run_command", "Train a HeteroTPJob manifest on this machine, without Kubernetes."),
    "bench": ("heterotp_cli.bench_command", "Redraw the paper's figures beside the paper's numbers."),
    "validate": ("heterotp_cli.validate_command", "Judge manifests as the API server would."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and return its `command`."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table's own help lines."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="heterotp")
def group() -> None:
    """Tensor-parallel training that stays fast when ranks run at different speeds."""


def main() -> None:
    """Run the command line; exit 0 done, 1 failed, 2 bad input, 130 stopped by Ctrl-C."""
    try:
        group(prog_name="heterotp")
    except BadInput as error:
        click.echo(str(error), err=True)
        sys.exit(EXIT_BAD_INPUT)
    except Failed as error:
        click.echo(str(error), err=True)
        sys.exit(EXIT_FAILED)
