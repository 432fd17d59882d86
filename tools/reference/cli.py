"""The page about the commands of `heterotp` and `kubectl heterotp`, from click."""

import inspect
from collections.abc import Iterator

import click
from heterotp_cli import main, plugin

from reference.markdown import code, document, plain, table

SOURCE = "the commands in cli/heterotp_cli"
INTRO = """\
`pip install 'heterotp[cli]'` installs both; `heterotp run`, `simulate` and `bench` also need `heterotp[trainer]`.
`kubectl` finds `kubectl-heterotp` in the PATH and calls it as `kubectl heterotp`.

Exit codes of both: 0 done, 1 failed or refused, 2 bad input (one line: option or field, its value, a valid value),
130 stopped by Ctrl-C."""


def page() -> str:
    """Return the page."""
    programs = (("heterotp", main.group), ("kubectl heterotp", plugin.group))
    sections = [section for name, group in programs for section in _sections(name, group, None)]
    return document("Commands", SOURCE, INTRO, *sections)


def _sections(name: str, command: click.Command, parent: click.Context | None) -> Iterator[str]:
    """Yield a section for the command, then sections for its subcommands."""
    context = click.Context(command, info_name=name if parent is None else command.name, parent=parent)
    level = "##" if parent is None else "###"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [
        f"{level} {context.command_path}",
        f"```text\n{usage}\n```",
        plain(inspect.cleandoc(command.help or "")),
        _options(context),
    ]
    yield "\n\n".join(filter(None, parts))
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            assert below is not None
            yield from _sections(each, below, context)


def _options(context: click.Context) -> str:
    options = (each for each in context.command.get_params(context) if isinstance(each, click.Option))
    records = (option.get_help_record(context) for option in options)
    rows = [(code(names), plain(text)) for names, text in filter(None, records) if "--help" not in names]
    return table(("option", "meaning"), rows) if rows else ""
