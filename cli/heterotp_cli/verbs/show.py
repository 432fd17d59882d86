"""Print views to a terminal, to a pipe, or as JSON; once or repeatedly."""

import json
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import click
from rich.console import Console, RenderableType

from heterotp_cli.verbs import describe, table
from heterotp_cli.verbs.follow import EVERY_SECONDS, follow, plain, screen
from heterotp_cli.verbs.view import JobView

Seen = TypeVar("Seen", JobView, list[JobView])
Draw = Callable[[Seen, int, int | None, str], RenderableType]  # from views, width, height and a note


def show_job(look: Callable[[], JobView], watch: bool, as_json: bool) -> None:
    """Show one job, once or until it has ended."""
    _show(look, table.render, lambda view: view.ended, watch, as_json)


def show_jobs(look: Callable[[], list[JobView]], watch: bool, as_json: bool, namespaces: bool, empty_text: str) -> None:
    """Show one line per job, once or until Ctrl-C."""

    def draw(views: Sequence[JobView], width: int, height: int | None, note: str) -> RenderableType:
        return table.overview(views, width, namespaces, empty_text, note)

    _show(look, draw, lambda views: False, watch, as_json)


def _show(
    look: Callable[[], Seen], draw: Draw[Seen], ended: Callable[[Seen], bool], watch: bool, as_json: bool
) -> None:
    if as_json:
        _print_json(look, ended, watch)
        return
    console = Console()
    if not watch:
        seen = look()
        if console.is_terminal:
            console.print(draw(seen, console.width, None, ""))
        else:
            click.echo(plain(draw(seen, sys.maxsize, None, "")))
        return
    with screen(console) as show:
        follow(look, lambda seen, note: draw(seen, *_size(console), note), ended, show)


def _size(console: Console) -> tuple[int, int | None]:
    """Return the present size of the terminal; a pipe is unbounded."""
    return (console.width, console.height) if console.is_terminal else (sys.maxsize, None)


def _print_json(look: Callable[[], Seen], ended: Callable[[Seen], bool], watch: bool) -> None:
    """Print one document, or one line for every change."""
    last = ""
    while True:
        seen = look()
        text = json.dumps(describe.as_json(seen), indent=None if watch else 2)
        if text != last:
            click.echo(text)
        last = text
        if not watch or ended(seen):
            return
        time.sleep(EVERY_SECONDS)


def show_ranks(view: JobView, now: float, as_json: bool) -> None:
    """Show all known values of every rank."""
    if as_json:
        click.echo(json.dumps(describe.as_json(view), indent=2))
        return
    console = Console()
    head = [text.plain for text in table.lines(view, _size(console)[0])]
    click.echo("\n".join([*head, "", *describe.describe(view, now)]))


def wrapped(paragraph: str) -> str:
    """Return a paragraph wrapped for the terminal, or as one line for a pipe."""
    console = Console()
    if not console.is_terminal:
        return paragraph
    return textwrap.fill(paragraph, console.width, break_long_words=False, break_on_hyphens=False)
