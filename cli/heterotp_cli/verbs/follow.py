"""`top -w`: read every second and show changes, in place on a terminal, else block by block."""

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click
from rich.console import Console, RenderableType
from rich.live import Live

from heterotp_cli.errors import Failed
from heterotp_cli.verbs.formatting import duration

EVERY_SECONDS = 1.0
PATIENCE_SECONDS = 60.0  # how long an API server may not answer
ENDLESS = 10_000  # columns: no terminal is wider
Seen = TypeVar("Seen")


def plain(renderable: RenderableType, width: int = ENDLESS) -> str:
    """Return the text without colours, and without blanks at line ends."""
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(renderable)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def follow(
    look: Callable[[], Seen],
    draw: Callable[[Seen, str], RenderableType],
    ended: Callable[[Seen], bool],
    show: Callable[[RenderableType], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show until the job has ended; after a failed `look` the last picture stays, with a note.

    Raises Failed where the first look fails, or all of them for PATIENCE_SECONDS.
    """
    seen, at = look(), clock()
    note = ""
    while True:
        show(draw(seen, note))
        if ended(seen):
            return
        sleep(EVERY_SECONDS)
        try:
            seen, at, note = look(), clock(), ""
        except Failed as error:
            if clock() - at >= PATIENCE_SECONDS:
                raise
            note = f"as it was {duration(clock() - at)} ago: {error}"


@contextmanager
def screen(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Give a function that shows a picture: in place of the last one on a terminal, else below it if it differs."""
    if not console.is_terminal:
        yield _blocks()
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield lambda renderable: live.update(renderable, refresh=True)


def _blocks() -> Callable[[RenderableType], None]:
    last = ""

    def show(renderable: RenderableType) -> None:
        nonlocal last
        text = plain(renderable)
        if text != last:
            click.echo(f"\n{text}" if last else text)
        last = text

    return show
